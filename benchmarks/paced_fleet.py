"""Six paced slots on real processes: one placement under one change of the work, launched and read from its folder.

For: `placement`. Not for: comparing. Work per group, in seconds of one slot: 0.5 rollout, 0.375 judge, 0.1 train; from
version `CHANGE` on three times the responses (1.5, 0.375, 0.3), or three times the votes (0.5, 1.125, 0.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.launched_run import LaunchedRun, launch
from deploy.inspection import Records, recorded_decisions
from deploy.run_check import saved_run
from deploy.server import reachable

SLOTS, GROUPS, STALENESS = 6, 12, 2
CHANGE, STEPS = 10, 22
TAKES = {"rollout": 0.5, "judge": 0.375, "train": 0.1}
TRIPLES = {"length": ("rollout", "train"), "votes": ("judge",)}
"""Change → pools whose groups take three times as long."""
GROWS = {"length": "rollout", "votes": "judge"}
"""Change → pool that should get slots."""
BEFORE, AFTER = (3, CHANGE), (CHANGE + STALENESS + 1, STEPS)
"""Windows of versions: without the start, and without groups begun before the change."""
EVERY_S, DWELL_S, HORIZON_S, MEMORY_S = 1.0, 5.0, 30.0, 10.0
OURS, COLOCATED = "pressure", "synchronous co-location"
STATIC = {
    f"static {rollout}, {5 - rollout}, 1": {"rollout": rollout, "judge": 5 - rollout, "train": 1}
    for rollout in range(1, 5)
}
"""Name → every division of six slots with one trainer."""
CASES = (OURS, *STATIC, COLOCATED)

Figures = dict[str, Any]


def overrides(case: str, change: str) -> list[str]:
    """Of the shipped run `paced`."""
    longer = f", later={{version={CHANGE}, length=[30, 120]}}" if change == "length" else ""
    more = f", later={{version={CHANGE}, votes=9}}" if change == "votes" else ""
    return [
        f"scheduler.slots={SLOTS}",
        f"run.steps={STEPS}",
        f"train.groups={GROUPS}",
        f"rollout.options={{accuracy=0.5, length=[10, 40], token_pace_s=0.005{longer}}}",
        f'reward.parts=[{{name="scripted_judge", options={{votes=3, pace_s=0.125, accuracy=0.9{more}}}}}]',
        "train.options={token_pace_s=0.001}",
        *(f"scheduler.{key}={value}" for key, value in placement(case).items()),
        *(f"pools.{pool}.min={0 if case == COLOCATED else 1}" for pool in TAKES),
        f"train.staleness={0 if case == COLOCATED else STALENESS}",
        f"train.checkpoint_every={1 if case == COLOCATED else 4}",
    ]


def placement(case: str) -> dict[str, Any]:
    if case == COLOCATED:
        return {"placement": "benchmarks.phases:make", "every_s": 0.25, "dwell_s": 0, "switching": 1}
    timing = {"every_s": EVERY_S, "dwell_s": DWELL_S, "horizon_s": HORIZON_S, "memory_s": MEMORY_S}
    if case == OURS:
        return timing
    split = ", ".join(f"{pool} = {count}" for pool, count in STATIC[case].items())
    return {**timing, "placement": "fixed", "split": f"{{{split}}}"}


def measured(case: str, change: str, root: Path) -> Figures:
    """Launch it, to its end."""
    run = launch(root, "paced", overrides(case, change))
    at = {int(step["version"]): float(step["at"]) for step in run.steps}
    found = decisions(run)
    return {
        **throughputs(at),
        "busy": {role: round(share, 3) for role, share in run.report["busy_share"].items() if role != "feeder"},
        "moves": sum(len(one["moves"]) for one in found),
        "staleness_mean": run.report["staleness"]["mean"],
        **(responses(found, at[CHANGE], GROWS[change]) if case == OURS else {}),
        "versions_s": [round(at[version] - at[1], 3) for version in sorted(at)],
        "slots": [[round(one["at"] - at[1], 2), one["split"]] for one in thinned(found)],
    }


def decisions(run: LaunchedRun) -> list[dict[str, Any]]:
    with reachable(run.folder, saved_run(run.folder).broker) as url:
        return recorded_decisions(Records(url, run.folder.name), 10_000)


def thinned(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those in which the division differs from the one before."""
    return [*found[:1], *(now for before, now in pairwise(found) if now["split"] != before["split"])]


def throughputs(at: Mapping[int, float]) -> dict[str, float]:
    """Groups trained per second: before the change, after it, and from the first version to the last."""
    windows = {"before": BEFORE, "after": AFTER, "whole": (1, STEPS)}
    return {
        f"{name}_groups_per_s": round((end - begin) * GROUPS / (at[end] - at[begin]), 3)
        for name, (begin, end) in windows.items()
    }


def responses(found: Sequence[dict[str, Any]], changed: float, pool: str) -> dict[str, float]:
    """Seconds from the changed version to the first and the last order of a slot to `pool`, and how many there were."""
    moves = [(one["at"], move) for one in found for move in one["moves"] if one["at"] > changed]
    there = [at - changed for at, move in moves if move["target"] == pool]
    back = sum(move["source"] == pool for _, move in moves)
    if not there:
        return {}
    return {"first_move_s": round(there[0], 1), "last_move_s": round(there[-1], 1), "there": len(there), "back": back}
