"""Curves under each bound on staleness as numbers: samples, tables, headline.

For: `staleness`. Not for: measuring or drawing. Curves are compared at equal seconds: half of the shortest run and the
whole of it, so that every run still goes on then.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.result import Circumstances, Result
from benchmarks.staleness_run import RUN, WAY, Curve

PAGE = Path(__file__).parent / "staleness.md"
MARKS = ("<!-- curves: written by the benchmark -->", "<!-- end of curves -->")
GOALS = (0.5, 0.55, 0.6)
"""Held-out accuracies whose seconds are told."""

Case = tuple[int, str]
"""Bound on staleness, way."""
Found = Mapping[Case, Mapping[int, Curve]]
"""Case → seed → curve."""
Cells = Callable[[Result, str], list[str]]
"""A case's part of a table's line."""


def name_of(case: Case) -> str:
    return f"staleness {case[0]}, {case[1]}"


def result_of(found: Found, before: Circumstances, versions: int) -> Result:
    """All samples, one number a seed; a goal has one only of the seeds that reached it, and their share beside it."""
    shortest = min(curve.seconds for curves in found.values() for curve in curves.values())
    marks = [5 * int(shortest / 10) or round(shortest / 2, 1), 5 * int(shortest / 5) or round(shortest, 1)]
    samples = {name_of(case): samples_of(curves, found.get((0, case[1]), {}), marks) for case, curves in found.items()}
    seeds = {seed for curves in found.values() for seed in curves}
    return Result(
        name="staleness",
        measures=f"`{RUN}` under bounds on staleness, {versions} versions from one warm start, seeds: {len(seeds)}",
        circumstances=before,
        settings={
            "versions": versions,
            "goals": GOALS,
            "marks_s": marks,
            "seeds": {name_of(case): sorted(curves) for case, curves in found.items()},
        },
        samples=samples,
    )


def samples_of(
    curves: Mapping[int, Curve], synchronous: Mapping[int, Curve], marks: Sequence[float]
) -> dict[str, list[float]]:
    """One case's; `synchronous`: the curves of bound 0 of the same way."""
    each = [curves[seed] for seed in sorted(curves)]
    found = {figure: [curve.figures[figure] for curve in each] for figure in each[0].figures}
    found["seconds"] = [curve.seconds for curve in each]
    for mark in marks:
        found[f"accuracy_at_{mark:g}_s"] = [round(curve.accuracy_at(mark), 4) for curve in each]
    found[f"accuracy_until_{marks[1]:g}_s"] = [round(curve.accuracy_until(marks[1]), 4) for curve in each]
    found["accuracy_at_last_version"] = [curve.points[-1][1] for curve in each]
    for goal in GOALS:
        reached = [seconds for curve in each if (seconds := curve.seconds_to(goal)) is not None]
        found[f"seconds_to_{goal:.2f}"] = [round(seconds, 2) for seconds in reached]
        found[f"reached_{goal:.2f}_share"] = [len(reached) / len(each)]
    both = sorted(curves.keys() & synchronous.keys())
    speeds = [curves[seed].figures["versions_per_s"] / synchronous[seed].figures["versions_per_s"] for seed in both]
    found["versions_per_s_over_staleness_0"] = [round(speed, 3) for speed in speeds]
    return {figure: numbers for figure, numbers in found.items() if numbers}


def tables(result: Result) -> list[str]:
    """What was reached when, and what everybody did meanwhile."""
    taken, marks = result.circumstances, result.settings["marks_s"]
    load = ", ".join(f"{one:.1f}" for one in taken.load_before)
    heads = [
        f"accuracy at {marks[0]:g} s",
        f"at {marks[1]:g} s",
        f"mean until {marks[1]:g} s",
        "after the last version",
        *(f"s to {goal:.2f}" for goal in GOALS),
    ]
    busy = ["versions/s", "of staleness 0", "staleness seen", "trainer busy", "trainer waits", "producer busy"]
    gap = ["mismatch (k3)", "masked", "clipped", "effective sample"]
    where = f"{taken.cores} cores ({taken.cpu}), load before: {load}"
    return [
        f"Taken {taken.date[:10]} on {where}. {result.measures}; medians over seeds, smallest and largest behind them.",
        "",
        *table(result, heads, reached_cells),
        "",
        *table(result, [*busy, *gap], busy_cells),
    ]


def table(result: Result, heads: Sequence[str], cells: Cells) -> list[str]:
    rows = [f"| {name} | {' | '.join(cells(result, name))} |" for name in result.samples]
    return [f"| | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}", *rows]


def reached_cells(result: Result, name: str) -> list[str]:
    marks = result.settings["marks_s"]
    figures = [
        *(f"accuracy_at_{mark:g}_s" for mark in marks),
        f"accuracy_until_{marks[1]:g}_s",
        "accuracy_at_last_version",
    ]
    return [
        *(spread_of(result.samples[name][figure], ".3f") for figure in figures),
        *(goal_cell(result, name, goal) for goal in GOALS),
    ]


def goal_cell(result: Result, name: str, goal: float) -> str:
    """The median over all seeds, one that never came there counted as later than all others."""
    count = len(result.samples[name]["seconds"])
    reached = sorted(result.samples[name].get(f"seconds_to_{goal:.2f}", []))
    if len(reached) == count:
        return spread_of(reached, ".0f")
    late = [*reached, *[float("inf")] * (count - len(reached))]
    middle = statistics.median_low(late)
    told = "not reached" if middle == float("inf") else f"{middle:.0f}"
    return f"{told} ({len(reached)} of {count})"


def busy_cells(result: Result, name: str) -> list[str]:
    shares = ("trainer_busy_share", "trainer_waits_share", "producer_busy_share")
    over = result.samples[name].get("versions_per_s_over_staleness_0")
    return [
        spread_of(result.samples[name]["versions_per_s"], ".2f"),
        spread_of(over, ".2f") if over else "–",
        f"{result.median(name, 'staleness_mean'):.2f}, {result.median(name, 'staleness_largest'):.0f} at most",
        *(f"{result.median(name, figure):.0%}" for figure in shares),
        f"{result.median(name, 'mismatch_k3'):.5f}",
        *(f"{result.median(name, figure):.2%}" for figure in ("masked_share", "clipped_share")),
        f"{result.median(name, 'ess'):.1%}",
    ]


def spread_of(numbers: Sequence[float], form: str) -> str:
    middle, least, most = (format(one, form) for one in (statistics.median(numbers), min(numbers), max(numbers)))
    return middle if len(numbers) == 1 else f"{middle} ({least}–{most})"


def headline(result: Result, found: Found) -> str:
    """How good after equal seconds, and how fast."""
    mark = result.settings["marks_s"][1]

    def line(way: str, figure: str, form: str) -> str:
        cases = [case for case in found if case[1] == way]
        return ", ".join(f"{result.median(name_of(case), figure):{form}} ({case[0]})" for case in cases)

    ways = [way for way in WAY if any(case[1] == way for case in found)]
    accuracies = "; ".join(f"{way} {line(way, f'accuracy_at_{mark:g}_s', '.3f')}" for way in ways)
    return f"accuracy after {mark:g} s (bound): {accuracies}; versions/s {line(ways[0], 'versions_per_s', '.2f')}"


def write_page(result: Result, page: Path = PAGE) -> None:
    """Between the two marks of the page."""
    before, _, rest = page.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text("\n".join([before + MARKS[0], *tables(result), MARKS[1] + after]))
