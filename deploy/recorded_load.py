"""A recorded run as a workload: what its groups cost and how that changed, from the run folder alone.

For: `tidemill simulate --trace`. Not for: replaying it group by group. Training seconds and tokens are taken version
by version; seconds of sampling and scoring follow from each role's busy share over the run, sampling in proportion to
tokens.
"""

from __future__ import annotations

from pathlib import Path

from broker.errors import Misconfigured
from deploy.records import by_version, records
from deploy.report import make_report
from deploy.run_check import saved_run
from scheduler.simulation.workload import Curve, Workload

FEWEST = 5
"""Versions that say something."""


def recorded_load(folder: Path, slots: int) -> Workload:
    """Raises Misconfigured for a run too short to say anything."""
    steps = [one for one in by_version(records(folder / "steps.jsonl")).values() if one.get("train_s")]
    facts, settings = make_report(folder), saved_run(folder)
    busy = facts.get("busy_share") or {}
    if len(steps) < FEWEST or not busy.get("rollout"):
        raise Misconfigured(
            f"{folder.name} holds {len(steps)} timed versions and busy shares of {', '.join(busy) or 'nobody'}; "
            f"nothing was simulated; name a run of {FEWEST} versions or more that has ended"
        )
    trained = sum(one["groups"] for one in steps)
    worked = {role: share * facts["seconds"] for role, share in busy.items()}
    sampling_s = worked["rollout"] * settings.pool("rollout").processes / trained
    judging_s = worked.get("judge", 0.0) * settings.pool("judge").processes
    scoring_s = (worked.get("reward", 0.0) + judging_s) / trained
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


def curve(values: list[float]) -> Curve:
    """One value per version, spread over the run."""
    return [(place / (len(values) - 1), max(value, 1e-6)) for place, value in enumerate(values)]
