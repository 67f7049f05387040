"""What moving slots is worth on a real fleet that sleeps: six paced slots, and every division that never changes.

    make bench-placement                                        # all: 12 runs, some 35 minutes on a quiet machine
    make bench-placement ARGS="--changes votes --cases pressure"    # a part; the rest is taken from before

Half-way responses, or votes, triple. Synchronous co-location is a placement too (`phases`): on this fleet with its real
moves, and on the simulator with moves that cost nothing. Each run is kept in `--out`; what is there is not run again
unless `--again` says so. Writes the results, the section of `benchmarks/placement.md`, and two pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.paced_fleet import CASES, COLOCATED, GROWS, OURS, STATIC, TRIPLES, Figures, measured
from benchmarks.paced_picture import draw
from benchmarks.paced_simulation import predicted
from benchmarks.result import Result, circumstances

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "placement.md", HERE.parent / "docs" / "images"
MARKS = ("<!-- paced fleet: written by the benchmark -->", "<!-- end of paced fleet -->")
WINDOWS = ("before", "after", "whole")

Found = Mapping[str, Mapping[str, Figures]]
"""Change → case → figures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--changes", nargs="+", choices=sorted(TRIPLES), default=sorted(TRIPLES))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--out", type=Path, default=Path("runs/placement"))
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    taken = circumstances()
    for change in given.changes:
        for case in given.cases:
            run_case(case, change, given.out, again=given.again)
    found = kept(given.out)
    summarise(
        found,
        Result(
            name="placement",
            measures="six paced slots, work triples mid-way: groups trained a second",
            circumstances=taken,
            settings={"runs": found},
            samples={
                f"{change}, {case}": samples(figures)
                for change, cases in found.items()
                for case, figures in cases.items()
            },
        ),
    )


def run_case(case: str, change: str, out: Path, *, again: bool) -> None:
    """Measure it into its file, if that is not there."""
    path, began = out / f"{change}, {case}.json", time.monotonic()
    if path.is_file() and not again:
        print(f"{change}, {case}: taken from {path}", flush=True)
        return
    with tempfile.TemporaryDirectory() as root:
        figures = measured(case, change, Path(root)) | {"predicted": predicted(case, change)}
    path.write_text(json.dumps(figures, indent=1) + "\n")
    told = ", ".join(f"{name} {figures[f'{name}_groups_per_s']:.2f}" for name in WINDOWS)
    print(f"{change}, {case}: {told} groups/s ({time.monotonic() - began:.0f} s)", flush=True)


def kept(out: Path) -> dict[str, dict[str, Figures]]:
    """Every case that was ever measured into this folder."""
    files = {change: {case: out / f"{change}, {case}.json" for case in CASES} for change in sorted(TRIPLES)}
    return {
        change: {case: json.loads(path.read_text()) for case, path in paths.items() if path.is_file()}
        for change, paths in files.items()
    }


def samples(figures: Figures) -> dict[str, list[float]]:
    flat = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return {
        name: [float(value)] for name, value in (*flat.items(), *each("busy", figures), *each("predicted", figures))
    }


def each(name: str, figures: Figures) -> list[tuple[str, float]]:
    return [(f"{name}_{key}", value) for key, value in figures[name].items()]


def summarise(found: Found, result: Result) -> None:
    whole = {change: cases for change, cases in found.items() if is_whole(cases)}
    result.save("; ".join(headline(change, cases) for change, cases in whole.items()) or "in part")
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    content = [line for change, cases in found.items() if cases for line in table(change, cases)]
    PAGE.write_text("\n".join([before + MARKS[0], *content, MARKS[1] + after]))
    for change, cases in whole.items():
        print(draw(change, cases, IMAGES / f"paced-{change}.png"))


def is_whole(cases: Mapping[str, Figures]) -> bool:
    """Enough to compare: ours and a division that never changes."""
    return OURS in cases and any(case in cases for case in STATIC)


def headline(change: str, cases: Mapping[str, Figures]) -> str:
    ours = cases[OURS]["whole_groups_per_s"]
    best = max(cases[case]["whole_groups_per_s"] for case in STATIC if case in cases)
    moved = f", first move after {cases[OURS]['first_move_s']:.0f} s" if "first_move_s" in cases[OURS] else ""
    return f"{change} triple: {ours / best:.2f} of the best static split{moved}"


def table(change: str, cases: Mapping[str, Figures]) -> list[str]:
    """One line a placement, and what ours did after the change."""
    lines = [
        f"{change.capitalize()} triple; groups trained a second, behind them the simulator's prediction:",
        "",
        f"| placement | {' | predicted | '.join(WINDOWS)} | predicted | busy: rollout, judge, train | moves |",
        f"| --- |{' ---: |' * 8}",
    ]
    for case, figures in sorted(cases.items(), key=lambda one: -one[1]["whole_groups_per_s"]):
        cells = [cell for name in WINDOWS for cell in (f"{figures[f'{name}_groups_per_s']:.2f}", guess(figures, name))]
        busy = ", ".join(f"{figures['busy'].get(role, 0):.0%}" for role in ("rollout", "judge", "trainer"))
        lines.append(f"| {case} | {' | '.join(cells)} | {busy} | {figures['moves']} |")
    picture = [f"![{change}](../docs/images/paced-{change}.png)", ""] if is_whole(cases) else []
    return [*lines, "", *remarks(change, cases), *picture]


def guess(figures: Figures, window: str) -> str:
    """The prediction and how far off it is; for co-location it has free moves and is no prediction."""
    value: Any = figures["predicted"].get(f"{window}_groups_per_s")
    if value is None or "switched_groups_per_s" in figures["predicted"]:
        return "–"
    return f"{value:.2f} ({value / figures[f'{window}_groups_per_s'] - 1:+.0%})"


def remarks(change: str, cases: Mapping[str, Figures]) -> list[str]:
    said: list[str] = []
    if (ours := cases.get(OURS)) and "first_move_s" in ours:
        said.append(
            f"After the change the first slot was ordered to {GROWS[change]} within {ours['first_move_s']:.0f} s, the "
            f"last within {ours['last_move_s']:.0f} s ({ours['there']} there, {ours['back']} away)."
        )
    if together := cases.get(COLOCATED):
        ideal = together["predicted"]
        said.append(
            f"Synchronous co-location would train {ideal['whole_groups_per_s']:.2f} groups a second if changing roles "
            f"took no time and all slots trained, {ideal['switched_groups_per_s']:.2f} with changes as long as a move."
        )
    return [*said, ""] if said else []


if __name__ == "__main__":
    main()
