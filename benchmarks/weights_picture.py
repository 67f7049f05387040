"""A version's way into an engine, part by part, as a picture.

For: `weights`. Not for: numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.result import Result

PARTS = {
    "export": "tab:blue",
    "canary, trainer": "tab:green",
    "digest": "tab:cyan",
    "records": "gold",
    "folder": "tab:olive",
    "announce": "tab:red",
    "digest, again": "paleturquoise",
    "load": "tab:purple",
    "put in order": "plum",
    "canary, engine": "lightgreen",
    "rest": "tab:gray",
}
"""In the order of time."""


def draw(result: Result, sizes: Sequence[str], path: Path) -> Path | None:
    """A PNG: one panel a size, milliseconds: the path, and the same bytes plainly."""
    from matplotlib.figure import Figure  # half a second, and only here

    if not sizes:
        return None
    figure = Figure(figsize=(9, 1 + 1.4 * len(sizes)), layout="constrained")
    panels = figure.subplots(len(sizes), 1, squeeze=False)[:, 0]
    for axes, name in zip(panels, sizes, strict=True):
        left = 0.0
        for part, colour in PARTS.items():
            width = result.median(name, f"{part} ms")
            axes.barh(0, width, left=left, color=colour, label=part)
            left += width
        for place, plain in enumerate(("plain file write", "memory copy"), 1):
            axes.barh(place, result.median(name, f"{plain} ms"), color="lightgray")
        axes.set_yticks(range(3), ["publish to served", "plain file write", "memory copy"])
        axes.invert_yaxis()
        axes.set_title(name, loc="left")
    panels[-1].set_xlabel("milliseconds")
    panels[0].legend(fontsize="x-small", ncols=4, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
