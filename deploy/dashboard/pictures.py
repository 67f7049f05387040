"""The charts of a run as PNG files, for papers and chats: backlogs and pools over time, staleness, seconds of a step.

For: `tidemill report`, beside `curve.png` (`deploy.curve`). Not for: the page, which draws for itself (`frozen`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker.streams import WORK_STREAMS
from deploy.dashboard.history import HISTORY_FILE
from deploy.dashboard.moment import Moment
from deploy.dashboard.run_page import staleness_counts
from deploy.records import Record, records, steps_of

COLOURS = {"prompts": "#2b74d0", "rollouts": "#c27803", "scored": "#1c8a56"}
POOL_COLOURS = {"rollout": "#2b74d0", "judge": "#c27803", "reward": "#c27803", "train": "#1c8a56", "trainer": "#1c8a56"}


def draw_pictures(folder: Path) -> list[Path]:
    """Every picture there is something for."""
    steps = list(steps_of(folder).values())
    moments = records(folder / HISTORY_FILE)
    drawn: list[Path] = []
    if moments:
        drawn.append(saved(folder / "timeline.png", 2, lambda axes: draw_timeline(axes, moments)))
    if steps:
        drawn.append(saved(folder / "staleness.png", 1, lambda axes: draw_staleness(axes[0], steps)))
        drawn.append(saved(folder / "seconds.png", 1, lambda axes: draw_seconds(axes[0], steps)))
    return drawn


def saved(path: Path, rows: int, draw: Callable[[Sequence[Any]], None]) -> Path:
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(8, 2.2 + 2 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0].tolist()
    for one in axes:
        one.grid(alpha=0.3)
    draw(axes)
    figure.savefig(path, dpi=120)
    return path


def draw_timeline(axes: Sequence[Any], moments: Sequence[Moment]) -> None:
    begun = moments[0]["at"]
    seconds = [one["at"] - begun for one in moments]
    for stream in WORK_STREAMS:
        axes[0].plot(seconds, [one["backlog"].get(stream, 0) for one in moments], color=COLOURS[stream], label=stream)
    pools = dict.fromkeys(lane[0] for one in moments for lane in one["lanes"].values() if lane[0] != "feeder")
    for pool in filter(None, pools):
        sizes = [sum(lane[0] == pool and lane[1] != "gone" for lane in one["lanes"].values()) for one in moments]
        axes[1].step(seconds, sizes, where="post", color=POOL_COLOURS.get(pool, "#7b8494"), label=pool)
    for move in (move for one in moments for move in one.get("moves", ())):
        for one in axes:
            one.axvline(move["at"] - begun, color="#d1467f", linewidth=0.8, linestyle=":")
    axes[0].set(ylabel="groups waiting", title="Backlog and pools; dotted: the scheduler moved slots")
    axes[1].set(ylabel="slots or processes", xlabel="seconds")
    for one in axes:
        one.legend(loc="upper left")


def draw_staleness(axes: Any, steps: Sequence[Record]) -> None:
    counts = staleness_counts(steps)
    axes.bar(list(counts), list(counts.values()), color="#1c8a56")
    axes.set(xlabel="versions between sampling and training", ylabel="groups", title="Staleness of trained groups")


def draw_seconds(axes: Any, steps: Sequence[Record]) -> None:
    """Seconds of each step: training, and before it waiting for groups or for the version before to be published."""
    parts = {"train_s": ("train", "#1c8a56"), "publish_s": ("publish", "#2b74d0"), "wait_s": ("wait", "#7b8494")}
    for name, (label, colour) in parts.items():
        known = [(step["version"], step[name]) for step in steps if name in step]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, linewidth=1, label=label)
    axes.set(xlabel="weight version", ylabel="seconds", title="Seconds of a step")
    axes.legend(loc="upper right")
