"""Accuracy under each bound on staleness as a picture: over seconds and over versions, corrected and not.

For: `staleness`. Not for: numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.staleness_run import WAY, Curve, Point
from benchmarks.staleness_table import Found

COLOURS = ("tab:red", "tab:orange", "tab:green", "tab:blue", "tab:purple", "tab:brown")
STEPS = 120
"""Places at which curves are put over each other."""


def draw(found: Found, path: Path) -> Path:
    """Median and range over seeds; a PNG under 150 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(10, 7.5), layout="constrained")
    panels = figure.subplots(2, len(WAY), sharey=True, squeeze=False)
    levels = sorted({level for level, _ in found})
    for place, way in enumerate(WAY):
        for (level, which), curves in found.items():
            if which == way:
                colour, each = COLOURS[levels.index(level) % len(COLOURS)], list(curves.values())
                band(panels[0][place], each, f"staleness {level}", colour)
                band(panels[1][place], [over_versions(curve) for curve in each], f"staleness {level}", colour)
        panels[0][place].set_title(f"{way}: held-out accuracy, median and range", loc="left", fontsize="medium")
        panels[0][place].set_xlabel("seconds since version 0 was served")
        panels[1][place].set_title(f"{way}: the same over versions", loc="left", fontsize="medium")
        panels[1][place].set_xlabel("version")
        for row in panels:
            row[place].grid(alpha=0.3)
    panels[0][0].legend(fontsize="small", loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=70)
    return path


def over_versions(curve: Curve) -> Curve:
    """The same accuracies, with versions for seconds."""
    points: list[Point] = [
        (float(version), accuracy) for version, (_, accuracy) in zip(curve.versions, curve.points, strict=True)
    ]
    return Curve(points=points, versions=curve.versions, figures=curve.figures)


def band(axes: object, curves: Sequence[Curve], label: str, colour: str) -> None:
    """As far as the shortest of them goes."""
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    end = min(curve.seconds for curve in curves)
    places = [end * step / STEPS for step in range(STEPS + 1)]
    columns = [[curve.accuracy_at(place) for curve in curves] for place in places]
    axes.plot(places, [statistics.median(column) for column in columns], color=colour, label=label)
    if len(curves) > 1:
        axes.fill_between(places, [min(c) for c in columns], [max(c) for c in columns], color=colour, alpha=0.12)
