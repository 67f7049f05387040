"""A recorded run as a workload: what its groups cost and how that changed, from the run folder alone.

For: `tidemill simulate --trace`. Not for: replaying it group by group. Training seconds and tokens are taken version
by version; seconds of sampling and scoring are those that each role worked over the run, sampling in proportion to
tokens. How many groups a slot holds at once is what its processes said, and how much groups of one version differ is
what the archive holds of their lengths. What a recording does not say keeps a workload's own value.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from broker.archive_index import GroupIndex
from broker.errors import Misconfigured
from deploy.observer import saved_snapshot
from deploy.records import by_version, records
from deploy.report import make_report
from deploy.run_check import saved_run
from deploy.snapshot import Life
from scheduler.observation import Service
from scheduler.simulation.workload import Curve, Workload

FEWEST = 5
"""Versions that say something."""
SCORING = ("judge", "reward")
"""Roles that score, the one with slots first."""


def recorded_load(folder: Path, slots: int) -> Workload:
    """Raises Misconfigured for a run too short to say anything."""
    steps = [one for one in by_version(records(folder / "steps.jsonl")).values() if one.get("train_s")]
    facts, settings = make_report(folder), saved_run(folder)
    lives = [Life(**life) for life in saved_snapshot(folder).get("lives", {}).values()]
    worked = worked_s(lives)
    if len(steps) < FEWEST or not worked.get("rollout"):
        raise Misconfigured(
            f"{folder.name} holds {len(steps)} timed versions and work of {', '.join(worked) or 'nobody'}; "
            f"nothing was simulated; name a run of {FEWEST} versions or more that has ended"
        )
    trained = sum(one["groups"] for one in steps)
    sampling_s, scoring_s = worked["rollout"] / trained, sum(worked[role] for role in SCORING) / trained
    tokens = [one["tokens"] / one["groups"] for one in steps]
    usual = sum(tokens) / len(tokens)
    books = facts["books"]
    survived = books["trained"] / max(1, books["trained"] + books["retired"])
    load = Workload(
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
    spread = spread_of(lengths(folder))
    return replace(load, shapes=shapes_of(lives, load.shapes), spread=load.spread if spread is None else spread)


def worked_s(lives: Iterable[Life]) -> dict[str, float]:
    """Role → seconds that all its processes worked, on slots or not, in all their lives."""
    worked = defaultdict[str, float](float)
    for life in lives:
        worked[life.role] += life.worked_s
    return worked


def shapes_of(lives: Sequence[Life], usual: dict[str, Service]) -> dict[str, Service]:
    """Pool → how its slots work on several groups at once: the mean of what their processes said."""
    found = dict(usual)
    for pool, roles in {"rollout": ("rollout",), "judge": SCORING}.items():
        said = next((said for role in roles if (said := [life for life in lives if life.role == role])), [])
        if places := [life.places for life in said if life.places]:
            half_at = statistics.fmean(life.half_at for life in said if life.places)
            found[pool] = replace(usual[pool], places=statistics.fmean(places), half_at=half_at)
    return found


def lengths(folder: Path) -> list[list[float]]:
    """Of each version, the tokens of the groups it was trained on; empty where no archive was kept."""
    by_version = defaultdict[int | None, list[float]](list)
    with GroupIndex(folder / "groups") as index:
        index.refresh()
        for row in index.search(kind="train", fate="trained", limit=-1).rows:
            by_version[row.trained].append(row.length * row.siblings)
    return [*by_version.values()]


def spread_of(lengths: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of the logarithm of tokens between groups of one version; None where no two were found."""
    found = [[math.log(length) for length in version if length > 0] for version in lengths]
    variances = [(statistics.variance(version), len(version) - 1) for version in found if len(version) > 1]
    degrees = sum(count for _, count in variances)
    return math.sqrt(sum(variance * count for variance, count in variances) / degrees) if degrees else None


def curve(values: list[float]) -> Curve:
    """One value per version, spread over the run."""
    return [(place / (len(values) - 1), max(value, 1e-6)) for place, value in enumerate(values)]
