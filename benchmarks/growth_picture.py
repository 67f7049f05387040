"""Growth as pictures: a long run over its steps, and each curve over its sizes with its law beside it.

For: `growth`. Not for: numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth_curves import AXES, LAWS, Curve
from benchmarks.growth_steps import LEFT_OUT, Line

COLOURS = dict(zip(AXES, ("tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True))
PANELS = {
    "rss (MB)": "memory (RSS, MB)",
    "used_memory (MB)": "what the server has allocated (MB)",
    "(ms)": "a step by the clock and in training (ms)",
    "processor a step (ms)": "processor time of a step (ms)",
}
"""End of a line's name → its panel."""


def draw_steps(lines: Mapping[str, Line], path: Path) -> Path:
    """A PNG under 150 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(10, 7), layout="constrained")
    panels = dict(zip(PANELS, figure.subplots(2, 2, sharex=True).flat, strict=True))
    for name, (steps, values) in lines.items():
        end = max((end for end in PANELS if name.endswith(end)), key=len, default="")
        if end:
            panels[end].plot(steps, values, linewidth=1.2, label=name.removesuffix(end).strip(" ,"))
    for end, panel in panels.items():
        panel.set_title(PANELS[end], loc="left", fontsize="medium")
        panel.axvspan(0, LEFT_OUT, color="0.92")
        panel.set_ylim(bottom=0)
        panel.legend(fontsize="x-small", ncols=2)
    figure.supxlabel("steps (grey: left out of the slopes)", fontsize="small")
    return saved(figure, path)


def draw_sizes(curves: Sequence[Curve], path: Path) -> Path:
    """A PNG under 150 KB."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), layout="constrained")
    panels = dict(zip(LAWS, figure.subplots(3, 2, sharex=True).flat, strict=True))
    for curve in curves:
        panel, colour = panels[curve.figure], COLOURS[curve.axis]
        panel.plot(curve.factors, curve.medians, "o-", color=colour, markersize=4, label=curve.axis)
        panel.plot(curve.factors, curve.law, "--", color=colour, linewidth=1)
    for name, panel in panels.items():
        panel.set_title(name, loc="left", fontsize="medium")
        panel.set(xscale="log", yscale="log")
        panel.grid(visible=True, which="both", linewidth=0.3)
        panel.legend(fontsize="x-small")
    figure.supxlabel("times the first size; dashed: the law, drawn through the first point", fontsize="small")
    return saved(figure, path)


def saved(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
