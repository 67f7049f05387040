"""What grows, and how fast: `python -m benchmarks.growth`.

`steps`: memory of every role and of the server, and the time of a step, over a thousand steps of `addition`; all of it
should be level. `sizes`: processor time and memory of the learner and of the sampler, and the bytes and the broker's
time of a group, while the model, the batch, the group and the context grow to ten times their size; each should follow
its law (`growth_curves`). `benchmarks/growth.md` says how to read it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from benchmarks import growth_curves, growth_sizes, growth_steps
from benchmarks.growth_broker import broker_figures
from benchmarks.growth_curves import AXES, FIRST, HEAD, LAWS, Curve
from benchmarks.growth_picture import draw_sizes, draw_steps
from benchmarks.growth_sizes import Size
from benchmarks.result import RESULTS, Result, Samples, circumstances

PARTS = ("steps", "sizes")
STEPS_CASE = "over the steps"
Measured = Mapping[str, Sequence[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3, help="of each size, after one that warms up")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the result and its pictures go")
    options = parser.parse_args()
    before = circumstances()
    samples: dict[str, Samples] = {}
    curves: list[Curve] = []
    with tempfile.TemporaryDirectory() as root:
        if "sizes" in options.parts:
            curves = curves_of(measured_sizes(Path(root), options.repeats))
            draw_sizes(curves, options.folder / "growth.png")
            samples |= {f"{curve.axis}: {curve.figure}": curve.samples for curve in curves}
        if "steps" in options.parts:
            long = growth_steps.measured(Path(root), options.steps)
            draw_steps(long.lines, options.folder / "growth-steps.png")
            samples[STEPS_CASE] = {name: [value] for name, value in long.figures.items()}
            print(*(f"{name}: {value:g}" for name, value in long.figures.items()), sep="\n")
    print(HEAD, *(curve.row for curve in curves), sep="\n")
    result = Result(
        name="growth",
        measures="memory and time of a step over 1 000 steps, and what ten times the size costs, beside its law",
        circumstances=before,
        settings={
            "steps": options.steps,
            "overrides": growth_steps.OVERRIDES,
            "left out": growth_steps.LEFT_OUT,
            "first size": asdict(FIRST),
            "micro_tokens": growth_sizes.MICRO_TOKENS,
            "max_rows": growth_sizes.MAX_ROWS,
            "work that is attention": {axis: [round(size.attention, 3) for size in AXES[axis]] for axis in AXES},
            "repeats": options.repeats,
        },
        samples=samples,
    )
    result.save("; ".join([*headline_of_steps(result), *headline_of_sizes(curves)]), folder=options.folder)


def measured_sizes(root: Path, repeats: int) -> dict[Size, dict[str, Sequence[float]]]:
    """Size → figure → a number a repeat; each size of each role in a process of its own."""
    found: dict[Size, dict[str, Sequence[float]]] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for size in dict.fromkeys(size for sizes in AXES.values() for size in sizes):
            model = root / f"model-{size.parameters}"
            if not model.is_dir():
                pool.submit(growth_sizes.build, size, model).result()
            figures: dict[str, Sequence[float]] = {}
            for role, work in growth_sizes.WORK.items():
                figures |= named(role, pool.submit(work, size, model, repeats).result())
            figures |= named("broker", broker_figures(size))
            found[size] = figures
            print(size, figures, flush=True)
    return found


def named(role: str, figures: Measured) -> Measured:
    return {f"{role}, {name}": numbers for name, numbers in figures.items()}


def curves_of(found: Mapping[Size, Measured]) -> list[Curve]:
    """A curve for each figure along each axis."""
    return [
        Curve(
            figure=figure,
            axis=axis,
            factors=growth_curves.factors(axis),
            measured=[found[size][figure] for size in AXES[axis]],
        )
        for figure in LAWS
        for axis in AXES
    ]


def headline_of_steps(result: Result) -> list[str]:
    """The role whose memory rises most, and the time of a step."""
    lines = result.samples.get(STEPS_CASE)
    if not lines:
        return []
    per = f", slope per {growth_steps.PER} steps"
    slopes = {name: numbers[0] for name, numbers in lines.items() if name.endswith(f"rss (MB){per}")}
    steepest = max(slopes, key=lambda name: slopes[name])
    step, rise = lines["step (ms)"][0], lines[f"step (ms){per}"][0]
    held = lines[f"redis used_memory (MB){per}"][0]
    words = (
        f"per 1 000 steps {steepest.partition(' ')[0]} grows most, {slopes[steepest]:+.1f} MB, all roles together "
        f"{sum(slopes.values()):+.1f} MB, what the server has allocated {held:+.2f} MB, "
        f"a step of {step:.0f} ms {rise:+.1f} ms"
    )
    return [words]


def headline_of_sizes(curves: Sequence[Curve]) -> list[str]:
    """Of the processor time: what growing costs, beside what it should."""
    roles = {"learner": "learner, processor (s)", "sampler": "sampler, processor (s)"}
    return [
        f"{role}'s processor time, times (law): "
        + ", ".join(
            f"{curve.axis} x{curve.factors[-1]:.3g} {curve.medians[-1] / curve.medians[0]:.1f} "
            f"({curve.law[-1] / curve.law[0]:.1f})"
            for curve in curves
            if curve.figure == figure
        )
        for role, figure in roles.items()
        if curves
    ]


if __name__ == "__main__":
    main()
