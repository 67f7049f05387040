"""One change of the work on the paced fleet as a picture: groups trained by each placement, and where our slots were.

For: `placement`. Not for: numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.paced_fleet import CHANGE, COLOCATED, GROUPS, OURS, TAKES, Figures

COLOURS = {"rollout": "tab:blue", "judge": "tab:orange", "train": "tab:green"}


def draw(change: str, cases: Mapping[str, Figures], path: Path) -> Path:
    """A PNG under 200 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(9, 6), layout="constrained")
    trained, slots = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    for case, figures in cases.items():
        seconds = figures["versions_s"]
        style = {OURS: "-", COLOCATED: ":"}.get(case, "--")
        width = 2.5 if case == OURS else 1.2
        trained.plot(seconds, [GROUPS * place for place in range(len(seconds))], style, linewidth=width, label=case)
    trained.axhline(GROUPS * (CHANGE - 1), color="tab:red", linewidth=0.8, linestyle=":")
    trained.set_title(f"{change} triple at the red line: groups trained since the first version", loc="left")
    trained.legend(fontsize="small")
    ours = cases[OURS]
    end = ours["versions_s"][-1]
    times = [at for at, _ in ours["slots"]] + [end]
    for pool in TAKES:
        held = [split[pool] for _, split in ours["slots"]]
        slots.plot(times, [*held, held[-1]], color=COLOURS[pool], drawstyle="steps-post", label=pool)
    slots.axvline(ours["versions_s"][CHANGE - 1], color="tab:red", linewidth=0.8, linestyle=":")
    slots.set_title(f"slots of each pool under {OURS}", loc="left")
    others = max(figures["versions_s"][-1] for case, figures in cases.items() if case != COLOCATED)
    slots.set(xlabel="seconds since the first version", ylim=(0, 6), xlim=(None, 1.05 * others))
    slots.legend(fontsize="small", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
