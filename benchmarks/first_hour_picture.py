"""A newcomer's first minutes as one bar, part after part, and what each leaves on the disk.

For: `first_hour`. Not for: numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def draw(figures: Mapping[str, float], path: Path) -> Path:
    """A PNG under 150 KB, from `NAME (s)`, in their order, and `NAME (MB)`."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(9, 5), layout="constrained")
    times, sizes = figure.subplots(2)
    before, moments = 0.0, [(name, value) for name, value in figures.items() if name.endswith(" (s)")]
    for place, (_, until) in enumerate(moments):
        times.barh(place, until - before, left=before)
        times.text(until, place, f" +{until - before:.1f} s", va="center", fontsize="small")
        before = until
    times.set_yticks(range(len(moments)), [name.removesuffix(" (s)") for name, _ in moments])
    times.set(xlim=(0, 1.12 * before))
    times.set_title("seconds since `git clone` was typed", loc="left", fontsize="medium")
    megabytes = [(name, value) for name, value in figures.items() if name.endswith(" (MB)")]
    sizes.barh(range(len(megabytes)), [max(value, 0.1) for _, value in megabytes], color="0.6")
    for place, (_, value) in enumerate(megabytes):
        sizes.text(max(value, 0.1), place, f" {value:,.1f}", va="center", fontsize="small")
    sizes.set_yticks(range(len(megabytes)), [name.removesuffix(" (MB)") for name, _ in megabytes], fontsize="small")
    sizes.set(xscale="log", xlim=(0.1, 10 * max(value for _, value in megabytes)))
    sizes.set_title("megabytes", loc="left", fontsize="medium")
    for panel in (times, sizes):
        panel.invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
