"""What a move of a slot costs, part by part, with a spare and without: `python -m benchmarks.moves`.

    make bench-moves                              # `addition`, six moves each way with each setting: minutes
    make bench-moves ARGS="--moves 2 --rounds 1"  # a look

A real run on two slots; one is emptied, the other goes from `rollout` to `train` and back, always to work that waits
for it. Runs with `scheduler.spare` on and off take turns, so that a machine that changes changes both. Writes figures,
the table of `benchmarks/moves.md` and its picture.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.moving_fleet import PARTS, moving_fleet
from benchmarks.result import Result, circumstances, gathered

HERE = Path(__file__).parent
PAGE = HERE / "moves.md"
PICTURE = HERE.parent / "docs" / "images" / "moves.png"
MARKS = ("<!-- moves: written by the benchmark -->", "<!-- end of moves -->")
OVERRIDES = ["run.steps=1000000", "run.stop_when=''", "prompts.eval.size=0", "scheduler.placement=fixed"]
WAYS = {"to train": "train", "to rollout": "rollout"}
SETTINGS = {"spare": True, "no spare": False}
SPARE = "a spare"
LIMIT_S = 10.0
"""A move takes no longer, its drain left out."""
COLOURS = {"hear": "0.75", "spawn": "tab:purple", "import": "tab:red", "load": "tab:blue", "catch up": "tab:cyan"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", default="addition")
    parser.add_argument("--moves", type=int, default=3, help="each way, in one launch")
    parser.add_argument("--rounds", type=int, default=2, help="launches of each setting")
    given = parser.parse_args()
    before = circumstances()
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as root:
        for _ in range(given.rounds):
            for setting, spare in SETTINGS.items():
                for case, figures in moved(Path(root), given.run, given.moves, spare=spare):
                    case = f"{case}, {setting}" if case in WAYS else case
                    print(case, figures, flush=True)
                    found[case].append(figures)
    result = Result(
        name="moves",
        measures=f"a slot of `{given.run}` moved from rollout to train and back, part by part",
        circumstances=before,
        settings={"run": given.run, "overrides": OVERRIDES, "moves": given.moves, "rounds": given.rounds},
        samples={case: gathered(parts) for case, parts in found.items()},
    )
    result.save(headline(result))
    write_page(result)
    draw(result)


def moved(root: Path, name: str, moves: int, *, spare: bool) -> list[tuple[str, dict[str, float]]]:
    """(way, seconds of each part) of so many moves each way; (`a spare`, its figures) of each spare."""
    found: list[tuple[str, dict[str, float]]] = []
    with moving_fleet(root, name, [*OVERRIDES, f"scheduler.spare={str(spare).lower()}"]) as fleet:
        for _ in range(moves):
            found += [(way, fleet.move(pool, spare=spare)) for way, pool in WAYS.items()]
        found += [(SPARE, figures) for figures in fleet.spares()]
    return found


def headline(result: Result) -> str:
    def median(way: str, setting: str) -> float:
        return result.median(f"{way}, {setting}", "all but the drain (s)")

    ways = [f"{way} {median(way, 'spare'):.1f} s, without a spare {median(way, 'no spare'):.1f} s" for way in WAYS]
    return f"all but the drain: {'; '.join(ways)} (limit {LIMIT_S:g})"


def write_page(result: Result) -> None:
    """Between the page's marks."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text("\n".join([before + MARKS[0], *table(result), MARKS[1] + after]))


def table(result: Result) -> list[str]:
    cases = [case for case in result.samples if case != SPARE]
    taken = result.circumstances
    count = min(len(result.samples[case]["spawn (s)"]) for case in cases)
    when = f"{taken.date[:16].replace('T', ' ')}, {taken.cores} cores, load before {taken.load_before[0]:.1f}"
    rows = [
        f"Medians of {count} moves, seconds; smallest and largest behind. {when}.",
        "",
        f"| part | {' | '.join(cases)} |",
        f"| --- |{' ---: |' * len(cases)}",
    ]
    for figure in result.samples[cases[0]]:
        spreads = [result.medians[case][figure] for case in cases]
        cells = [f"{one['median']:.2f} ({one['smallest']:.2f}–{one['largest']:.2f})" for one in spreads]
        rows.append(f"| {figure.removesuffix(' (s)')} | {' | '.join(cells)} |")
    spare = {figure: one["median"] for figure, one in result.medians[SPARE].items()}
    said = ", ".join(f"{figure} {median:g}" for figure, median in spare.items())
    return [*rows, "", f"A spare, medians of {len(result.samples[SPARE]['import (s)'])}: {said}."]


def draw(result: Result) -> None:
    """One bar a case: the parts, without the drain."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    cases = sorted((case for case in result.samples if case != SPARE), reverse=True)
    begun = dict.fromkeys(cases, 0.0)
    for part in (part for part in PARTS if part != "drain"):
        widths = [result.median(case, f"{part} (s)") for case in cases]
        axes.barh(cases, widths, left=list(begun.values()), label=part, color=COLOURS.get(part, "tab:green"))
        begun = {case: begun[case] + width for case, width in zip(cases, widths, strict=True)}
    axes.set(xlabel="seconds, medians")
    axes.legend(ncols=6, fontsize="small", loc="upper center", bbox_to_anchor=(0.4, 1.2))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=90)


if __name__ == "__main__":
    main()
