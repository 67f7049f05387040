"""What the page of a run is told, as plain JSON: the whole at first, then what is new.

For: the shape of `/api/runs/RUN` and of its events; pure. Not for: gathering (`watch`) or drawing (`page/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from deploy.records import Record, by_version
from deploy.report import newest_version, staleness_of
from deploy.run_settings import RunSettings
from deploy.snapshot import Snapshot, books_of

T = TypeVar("T")
POINTS = 1500
"""Most points of a curve that are sent; a screen has no more columns."""
STEP_FIELDS = (
    *("version", "at", "seconds", "reward", "loss", "grad_norm", "groups", "rollouts", "tokens", "zero_signal"),
    *("wait_s", "train_s", "publish_s", "kl", "entropy", "clip_share", "recovered"),
)


def settings_facts(settings: RunSettings) -> dict[str, Any]:
    """What a person wants to know of a run's settings at a glance, and all of them."""
    return {
        "steps": settings.run.steps,
        "stop_when": settings.run.stop_when,
        "staleness": settings.train.staleness,
        "groups": settings.train.groups,
        "group_size": settings.rollout.group_size,
        "slots": settings.scheduler.slots,
        "algorithm": settings.algorithm.name,
        "all": {**settings.model_dump(mode="json"), "broker": settings.broker.model_dump(mode="json", exclude={"url"})},
    }


def present(snapshot: Snapshot, steps: Sequence[Record]) -> dict[str, Any]:
    """The run now; `live`: its server answers."""
    decision = snapshot.decision
    return {
        "live": snapshot.live and not snapshot.unanswered,
        "stage": snapshot.stage,
        "detail": snapshot.detail,
        "finished": snapshot.finished,
        "elapsed_s": round(snapshot.elapsed_s, 1),
        "version": newest_version({"version": snapshot.version}, steps) if steps else snapshot.version,
        "accuracy": [snapshot.accuracy_start, snapshot.accuracy],
        "tokens_per_s": snapshot.tokens_per_s,
        "completions_per_s": snapshot.completions_per_s,
        "books": {kind: books_of(snapshot.counts, kind) for kind in ("train", "eval")},
        "reasons": reasons_of(snapshot.counts),
        "backlog": dict(snapshot.backlog),
        "staleness": {**staleness_of(steps), "counts": staleness_counts(steps)},
        "processes": {
            name: {"role": p.role, "pid": p.pid, "stage": p.stage, "age_s": round(p.age_s, 1), "version": p.version}
            for name, p in snapshot.processes.items()
            if snapshot.live
        },
        "decision": {"sentence": decision.sentence, "age_s": round(decision.age_s, 1)} if decision else None,
    }


def reasons_of(counts: Mapping[str, int]) -> dict[str, int]:
    """`retired.no_signal` → groups, for both kinds together."""
    found: dict[str, int] = {}
    for name, count in counts.items():
        _, fate, *reason = name.split(".", 2)
        if reason and count:
            found[f"{fate}.{reason[0]}"] = found.get(f"{fate}.{reason[0]}", 0) + count
    return found


def staleness_counts(steps: Sequence[Record]) -> dict[str, int]:
    """Staleness → groups trained with it, over the whole run."""
    counts: dict[str, int] = {}
    for step in steps:
        for value, number in step["staleness"].get("counts", {}).items():
            counts[str(value)] = counts.get(str(value), 0) + number
    return dict(sorted(counts.items(), key=lambda item: int(item[0])))


def step_points(steps: Sequence[Record]) -> list[Record]:
    """What curves need of each step, thinned."""
    return [step_point(step) for step in thinned(list(by_version(list(steps)).values()), POINTS)]


def step_point(step: Record) -> Record:
    rounded = {name: short(step[name]) for name in STEP_FIELDS if name in step}
    return {**rounded, "staleness": [short(step["staleness"]["mean"]), step["staleness"]["max"]]}


def short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and abs(value) < 1e6 else value


def thinned(values: list[T], most: int) -> list[T]:
    """Evenly chosen, first and last kept."""
    if len(values) <= most:
        return values
    chosen = sorted({round(place * (len(values) - 1) / (most - 1)) for place in range(most)})
    return [values[place] for place in chosen]
