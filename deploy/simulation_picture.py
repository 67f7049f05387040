"""One simulated run as a picture: pool sizes, backlogs, staleness and busy share over time.

For: `tidemill simulate --out`. Not for: numbers (`scheduler.simulation.comparison`).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from scheduler.simulation.comparison import Comparison
from scheduler.simulation.outcome import Course

COLOURS = {"rollout": "tab:blue", "judge": "tab:orange", "train": "tab:green"}
SMOOTH = 60
"""Looks over which the busy share is a mean."""


def draw_comparison(one: Comparison, path: Path) -> Path:
    """Our run on the first seed; a PNG under 200 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    course, load = one.outcomes[one.ours][0].course, one.workload
    hours = [seconds / 3600 for seconds in course["seconds"]]
    figure = Figure(figsize=(9, 8), layout="constrained")
    sizes, backlogs, stale, busy = figure.subplots(4, sharex=True)
    for pool, colour in COLOURS.items():
        sizes.plot(hours, course[f"slots.{pool}"], color=colour, label=pool, drawstyle="steps-post")
        sizes.axhline(one.static[pool], color=colour, linewidth=0.8, linestyle=":")
        backlogs.plot(hours, course[f"backlog.{pool}"], color=colour, linewidth=0.8)
        busy.plot(hours[SMOOTH:], busy_share(course, pool), color=colour, linewidth=0.8)
    stale.plot(hours, course["staleness"], color="tab:gray")
    stale.axhline(load.staleness, color="tab:red", linewidth=0.8, linestyle=":")
    titles(sizes, f"{load.name}, {one.slots} slots, {one.ours}: serving slots (dotted: best static split)")
    titles(backlogs, "backlog, groups")
    titles(stale, "mean staleness so far, versions (dotted: the bound)")
    titles(busy, "busy share of each pool's slots, at full speed")
    sizes.legend(loc="upper right", ncols=3, fontsize="small")
    busy.set(xlabel="hours", ylim=(0, 1.05))
    figure.savefig(path, dpi=90)
    return path


def titles(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize="medium", loc="left")
    axes.grid(alpha=0.3)


def busy_share(course: Course, pool: str) -> list[float]:
    """Useful work between looks over the slots that were there."""
    useful, slots, seconds = course[f"useful_s.{pool}"], course[f"slots.{pool}"], course["seconds"]
    spent = [0.0]
    for (then, now), held in zip(pairwise(seconds), slots[1:], strict=True):
        spent.append(spent[-1] + (now - then) * held)
    return [
        min(1.05, (useful[at] - useful[at - SMOOTH]) / max(1e-9, spent[at] - spent[at - SMOOTH]))
        for at in range(SMOOTH, len(seconds))
    ]
