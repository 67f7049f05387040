"""A recorded run as a workload: what its groups cost and how that changed, from the run folder alone.

For: `tidemill simulate --trace`. Not for: replaying it group by group. Training seconds and tokens are taken version
by version; seconds of sampling and scoring are those that each role worked over the run, sampling in proportion to
tokens.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from broker.errors import Misconfigured
from deploy.observer import saved_snapshot
from deploy.records import by_version, records
from deploy.report import make_report
from deploy.run_check import saved_run
from deploy.snapshot import Life
from scheduler.simulation.workload import Curve, Workload

FEWEST = 5
"""Versions that say something."""


def recorded_load(folder: Path, slots: int) -> Workload:
    """Raises Misconfigured for a run too short to say anything."""
    steps = [one for one in by_version(records(folder / "steps.jsonl")).values() if one.get("train_s")]
    facts, settings = make_report(folder), saved_run(folder)
    worked = worked_s(folder)
    if len(steps) < FEWEST or not worked.get("rollout"):
        raise Misconfigured(
            f"{folder.name} holds {len(steps)} timed versions and work of {', '.join(worked) or 'nobody'}; "
            f"nothing was simulated; name a run of {FEWEST} versions or more that has ended"
        )
    trained = sum(one["groups"] for one in steps)
    sampling_s, scoring_s = worked["rollout"] / trained, (worked["reward"] + worked["judge"]) / trained
    tokens = [one["tokens"] / one["groups"] for one in steps]
    usual = sum(tokens) / len(tokens)
    books = facts["books"]
    survived = books["trained"] / max(1, books["trained"] + books["retired"])
    return Workload(
        name=folder.name,
        about=f"recorded: {len(steps)} versions of {steps[0]['groups']} groups",
        versions=len(steps),
        groups_per_slot=steps[0]["groups"] / slots,
        staleness=settings.train.staleness,
        surviving=((0.0, survived), (1.0, survived)),
        costs={
            "rollout": curve([sampling_s * survived * one / usual for one in tokens]),
            "judge": curve([scoring_s * survived] * len(steps)),
            "train": curve([one["train_s"] / one["groups"] for one in steps]),
        },
        step_s=sum(one.get("publish_s", 0.0) for one in steps) / len(steps),
    )


def worked_s(folder: Path) -> dict[str, float]:
    """Role → seconds that all its processes worked, on slots or not, in all their lives."""
    worked = defaultdict[str, float](float)
    for life in saved_snapshot(folder).get("lives", {}).values():
        worked[life["role"]] += Life(**life).worked_s
    return worked


def curve(values: list[float]) -> Curve:
    """One value per version, spread over the run."""
    return [(place / (len(values) - 1), max(value, 1e-6)) for place, value in enumerate(values)]
