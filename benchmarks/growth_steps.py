"""Whether anything grows with the number of steps: memory and time of every role over one long run.

For: `growth`. Not for: what grows with sizes (`growth_sizes`).

Every group takes part in every step, also one whose rewards are all alike: else a step's work would shrink as the model
learns, and hide what grows. A slope is the median of the slopes between all pairs of looks (Theil–Sen): a moment in
which the machine was busy moves it little.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.role_watch import RoleWatch, Series

OVERRIDES = ["run.stop_when=''", "train.options={without_signal='train'}"]
LEFT_OUT = 100
"""Steps at the beginning that no slope is taken of: allocators and caches fill."""
BLOCK = 20
"""Steps between two evaluations and two checkpoints of `addition`: a block has one of each."""
PER = 1000
"""Steps that a slope is told for."""

Line = tuple[Sequence[float], Sequence[float]]
"""Steps done, and the value then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Long:
    """One long run."""

    lines: Mapping[str, Line]
    """`trainer-0 rss (MB)` … → over the steps, those left out included."""

    @property
    def figures(self) -> dict[str, float]:
        """Level and slope of each line after the first steps."""
        found: dict[str, float] = {}
        for name, (steps, values) in self.lines.items():
            kept = [(at, value) for at, value in zip(steps, values, strict=True) if at >= LEFT_OUT]
            if len(kept) > 1:
                found[name] = statistics.median(value for _, value in kept)
                found[f"{name}, slope per {PER} steps"] = PER * slope(*zip(*kept, strict=True))
        return {name: round(value, 4) for name, value in found.items()}


def measured(root: Path, steps: int) -> Long:
    with RoleWatch(root) as watch:
        run = launch(root, "addition", [*OVERRIDES, f"run.steps={steps}"])
    ends = [step["at"] for step in run.steps]
    lines = dict(time_lines(run))
    for name, series in sorted(watch.roles.items()):
        lines |= lines_of(name, series, ends)
    lines["redis used_memory (MB)"] = over_steps(watch.server.at, watch.server.used_mb, ends)
    return Long(lines=lines)


def time_lines(run: LaunchedRun) -> Mapping[str, Line]:
    """Milliseconds of a step, block by block: by the clock, and of the trainer's own training."""
    steps = run.steps
    lasts = range(BLOCK, len(steps), BLOCK)
    clock = [1e3 * (steps[last]["at"] - steps[last - BLOCK]["at"]) / BLOCK for last in lasts]
    trained = [1e3 * statistics.fmean(step["train_s"] for step in steps[last - BLOCK : last]) for last in lasts]
    return {"step (ms)": (list(lasts), clock), "step, training (ms)": (list(lasts), trained)}


def lines_of(name: str, series: Series, ends: Sequence[float]) -> Mapping[str, Line]:
    """Of one role; processor time is that of a step, block by block."""
    lasts = range(BLOCK, len(ends), BLOCK)
    used = np.interp([ends[last] for last in range(0, len(ends), BLOCK)], series.at, series.cpu_s)
    return {
        f"{name} rss (MB)": over_steps(series.at, series.rss_mb, ends),
        f"{name} pss (MB)": over_steps(series.at, series.pss_mb, ends),
        f"{name} processor a step (ms)": (list(lasts), (1e3 * np.diff(used) / BLOCK).tolist()[: len(lasts)]),
    }


def over_steps(at: Sequence[float], values: Sequence[float], ends: Sequence[float]) -> Line:
    """The looks between the first step and the last, by the number of steps that were done then."""
    kept = [(moment, value) for moment, value in zip(at, values, strict=True) if ends[0] <= moment <= ends[-1]]
    steps = np.interp([moment for moment, _ in kept], ends, np.arange(1, len(ends) + 1))
    return steps.tolist(), [value for _, value in kept]


def slope(steps: Sequence[float], values: Sequence[float]) -> float:
    """Theil–Sen: the median of the slopes between all pairs."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    return float(np.median((y[second] - y[first])[apart > 0] / apart[apart > 0]))
