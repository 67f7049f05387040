"""The learning curve of a run as a picture: held-out accuracy and training reward over weight versions.

For: `curve.png`. Not for: numbers (`report`).
"""

from __future__ import annotations

from pathlib import Path

from deploy.records import evaluations_of, steps_of

CURVE_FILE = "curve.png"


def draw_curve(folder: Path) -> Path | None:
    """Draw `curve.png`; None when there is nothing to draw."""
    steps, measured = steps_of(folder), evaluations_of(folder)
    if not steps and not measured:
        return None
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(list(steps), [step["reward"] for step in steps.values()], color="tab:gray", linewidth=1, label="reward")
    axes.plot(list(measured), [one["accuracy"] for one in measured.values()], "o-", color="tab:blue", label="accuracy")
    axes.set(xlabel="weight version", title=folder.name)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path = folder / CURVE_FILE
    figure.savefig(path, dpi=120)
    return path
