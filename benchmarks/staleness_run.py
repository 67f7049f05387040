"""One run of `long-tail` under a bound on staleness, with or without off-policy correction, and its curve.

For: `staleness`. Not for: keeping or comparing curves. Seconds count from the moment a producer serves version 0, so
that no import and no loading is in them, and an accuracy belongs to the moment its version was published: a held-out
prompt that waits behind a longer queue makes the measurement later, not the model.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.launched_run import LaunchedRun, launch

RUN = "long-tail"
UNCORRECTED = 'algorithm.correction={token="none", sequence="none"}'
WAY = {"corrected": (), "uncorrected": (UNCORRECTED,)}
"""Way → overrides; the shipped run's own correction is the default one."""
TOLD = ("mismatch_k3", "masked_share", "clipped_share", "ess")
"""What the learner tells of each step about actions that an older policy sampled."""

Point = tuple[float, float]
"""Seconds, held-out accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one run came to."""

    points: Sequence[Point]
    """One for each measured version, in order."""
    versions: Sequence[int]
    """Of the points."""
    figures: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.points[-1][0]

    def seconds_to(self, accuracy: float) -> float | None:
        """When the line through the points first comes to it; None when it never does."""
        if self.points[0][1] >= accuracy:
            return 0.0
        for (from_s, before), (to_s, after) in pairwise(self.points):
            if after >= accuracy:
                return from_s + (to_s - from_s) * (accuracy - before) / (after - before)
        return None

    def accuracy_at(self, seconds: float) -> float:
        """On the line through the points; the last one's beyond them."""
        for (from_s, before), (to_s, after) in pairwise(self.points):
            if seconds <= to_s:
                return before + (after - before) * (seconds - from_s) / (to_s - from_s)
        return self.points[-1][1]

    def accuracy_until(self, seconds: float) -> float:
        """Mean of `accuracy_at` from 0 on: one figure for a whole noisy curve."""
        return statistics.mean(self.accuracy_at(seconds * part / 100) for part in range(101))


def warm_model(folder: Path, root: Path) -> Path:
    """The warm start that all runs share, made by a first run if `folder` is not there."""
    if not folder.is_dir():
        made = launch(root, RUN, ["run.steps=1"]).folder
        shutil.copytree(made / "model", folder.with_suffix(".draft"), dirs_exist_ok=True)
        folder.with_suffix(".draft").rename(folder)
        shutil.rmtree(made)
    return folder.resolve()


def measured(root: Path, model: Path, *, seed: int, level: int, way: str, versions: int) -> Curve:
    """Launch it, to its end, and delete its folder."""
    overrides = [
        f'model.init="{model}"',
        "model.warm_start=none",
        f"run.seed={seed}",
        f"run.steps={versions}",
        'run.stop_when=""',
        f"train.staleness={level}",
        *WAY[way],
    ]
    run = launch(root, RUN, overrides)
    curve = curve_of(run)
    shutil.rmtree(run.folder)
    return curve


def curve_of(run: LaunchedRun) -> Curve:
    began = run.logged_at("rollout-0", "serving", version=0)
    published = {0: began, **{step["version"]: step["at"] for step in run.steps}}
    found = sorted((int(one["version"]), float(one["accuracy"])) for one in run.evaluations)
    return Curve(
        points=[(round(published[version] - began, 3), accuracy) for version, accuracy in found],
        versions=[version for version, _ in found],
        figures=figures(run),
    )


def figures(run: LaunchedRun) -> dict[str, float]:
    """From the first trained version to the last, but for the busy shares, which hold from start to end."""
    report, steps = run.report, run.steps
    trained, seconds = steps[1:], steps[-1]["at"] - steps[0]["at"]
    found = {
        "versions_per_s": len(trained) / seconds,
        "completions_per_s": sum(step["rollouts"] for step in trained) / seconds,
        "trainer_waits_share": sum(step["wait_s"] for step in trained) / seconds,
        "trainer_busy_share": report["busy_share"]["trainer"],
        "producer_busy_share": report["busy_share"]["rollout"],
        "staleness_mean": report["staleness"]["mean"],
        "staleness_largest": float(report["staleness"]["max"]),
        **{name: statistics.mean(step[name] for step in steps) for name in TOLD},
    }
    return {name: round(value, 5) for name, value in found.items()}
