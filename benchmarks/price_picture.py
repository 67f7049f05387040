"""Where a group's processor time goes, in a run and in the bare loop, as a picture.

For: `price`. Not for: numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.result import Result

COLOURS = {
    "trainer": "tab:green",
    "rollout": "tab:blue",
    "rules": "tab:orange",
    "reward": "gold",
    "feeder": "tab:cyan",
    "server": "tab:red",
    "launcher": "tab:purple",
    "other": "tab:gray",
}
SIDES = {"tidemill": "tidemill", "processes": "bare,\n2 processes", "threads": "bare,\n2 threads\n(together)"}


def draw(result: Result, runs: Sequence[str], path: Path) -> Path:
    """A PNG: one panel a run, one bar a side, processor ms of a group by role; above it groups/s."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(4.5 * len(runs), 4.5), layout="constrained")
    panels = figure.subplots(1, len(runs), squeeze=False)[0]
    for axes, name in zip(panels, runs, strict=True):
        for place, side in enumerate(SIDES):
            bottom = 0.0
            for role, colour in COLOURS.items():
                figures = result.medians[f"{name}, {side}"]
                height = figures.get(f"{role}_processor_ms_a_group", {"median": 0.0})["median"]
                axes.bar(place, height, bottom=bottom, color=colour, label=role if place == 0 else None)
                bottom += height
            speed = result.median(f"{name}, {side}", "groups_per_s")
            axes.text(place, bottom, f"{speed:,.0f} groups/s", ha="center", va="bottom", fontsize="small")
        axes.set_xticks(range(len(SIDES)), list(SIDES.values()))
        axes.set_title(name, loc="left")
        axes.set_ylabel("processor ms a group")
        axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
    panels[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
