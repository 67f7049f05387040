"""What refilling costs the trainer under dynamic sampling: `python -m benchmarks.dynamic_sampling`.

Groups without a signal are dropped before training, and the batch is refilled until enough survive. By admission, as
the product does it, each dropped group's place is free at once; in waves, as loops that take turns do it, what the
batch lacks is sampled and filtered whole before the next groups are asked for. Both on the same real processes and
broker, at the same paces: taking turns with the trainer (staleness 0) and beside it (staleness 1). The fleet stays the
same while fewer and fewer groups survive; `fleet alone` is what the trainer waits at least, as producers are too few.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

from benchmarks.paced_refill import GROUPS, LENGTH, PRODUCERS, REFILLS, SIBLINGS, STEP_S, TOKEN_S, measured
from benchmarks.result import RESULTS, Result, circumstances, gathered

PAGE = Path(__file__).parent / "dynamic_sampling.md"
MARKS = ("<!-- refill: written by the benchmark -->", "<!-- end of refill -->")
SHARES = (0.5, 0.3, 0.2, 0.1)
STALENESS = (0, 1)
STYLES = {"admission": "-", "waves": "--"}
COLOURS = {0: "tab:orange", 1: "tab:blue"}

Case = tuple[str, int, float]
"""Refill, bound on staleness, surviving share."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=1, help="each with a seed of its own")
    parser.add_argument("--versions", type=int, default=9, help="of each run; the first is not counted")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), metavar="SHARE")
    parser.add_argument("--results", type=Path, default=RESULTS, help="elsewhere, the page stays as it is")
    given = parser.parse_args()
    before, began = circumstances(), time.monotonic()
    found: dict[Case, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for seed, share in itertools.product(range(given.repeats), given.shares):
            for staleness, refill in itertools.product(STALENESS, REFILLS):
                run = measured(Path(root), refill, share, staleness, versions=given.versions, seed=seed)
                found.setdefault((refill, staleness, share), []).append(run.figures)
                print(f"{name_of((refill, staleness, share))}: {run.figures}", flush=True)
    result = Result(
        name="dynamic_sampling",
        measures="dynamic sampling on a paced fleet: the trainer's waiting share, refilled by admission or in waves",
        circumstances=before,
        settings={
            "repeats": given.repeats,
            "versions": given.versions,
            "producers": PRODUCERS,
            "siblings": SIBLINGS,
            "tokens": LENGTH,
            "token_s": TOKEN_S,
            "groups": GROUPS,
            "step_s": STEP_S,
            "seconds": round(time.monotonic() - began),
        },
        samples={name_of(case): gathered(runs) for case, runs in found.items()},
    )
    print("\n".join(table(result, given.shares)))
    print(draw(result, given.shares, given.results / "dynamic_sampling.png"))
    if given.results == RESULTS:
        write_page(result, given.shares)
    result.save(headline(result, given.shares), given.results)


def name_of(case: Case) -> str:
    refill, staleness, share = case
    return f"{refill}, staleness {staleness}, {share:.0%} survive"


def headline(result: Result, shares: list[float]) -> str:
    def waits(refill: str, staleness: int) -> str:
        figures = (result.median(name_of((refill, staleness, share)), "trainer_waits_share") for share in shares)
        return ", ".join(f"{figure:.0%}" for figure in figures)

    told = (f"{refill} {waits(refill, bound)} (staleness {bound})" for bound in STALENESS for refill in REFILLS)
    return f"trainer waits while {', '.join(f'{share:.0%}' for share in shares)} survive: {'; '.join(told)}"


def table(result: Result, shares: list[float]) -> list[str]:
    """A line per share and bound, admission beside waves."""
    heads = [
        f"{refill}: {what}" for what in ("trainer waits", "groups/s", "sampled a trained group") for refill in REFILLS
    ]
    lines = [
        f"| surviving | staleness | {' | '.join(heads)} | groups/s over waves | fleet alone: trainer waits |",
        f"| ---: | ---: |{' ---: |' * (len(heads) + 2)}",
    ]
    for share, staleness in itertools.product(shares, STALENESS):
        names = {refill: name_of((refill, staleness, share)) for refill in REFILLS}
        cells = [
            *(f"{result.median(name, 'trainer_waits_share'):.0%}" for name in names.values()),
            *(f"{result.median(name, 'groups_per_s'):.2f}" for name in names.values()),
            *(f"{result.median(name, 'sampled_per_trained'):.1f}" for name in names.values()),
        ]
        speeds = [result.median(names[refill], "groups_per_s") for refill in REFILLS]
        alone = f"{fleet_waits(result, share):.0%}" if staleness else "–"
        row = [f"{share:.0%}", f"{staleness}", *cells, f"{speeds[0] / speeds[1]:.2f}", alone]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def fleet_waits(result: Result, share: float) -> float:
    """Least waiting beside the trainer: as if all producers sampled without a pause."""
    return result.median(name_of(("admission", 1, share)), "fleet_waits_share")


def draw(result: Result, shares: list[float], path: Path) -> Path:
    """A PNG under 150 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for staleness, refill in itertools.product(STALENESS, REFILLS):
        cases = [name_of((refill, staleness, share)) for share in shares]
        waits = [result.median(name, "trainer_waits_share") for name in cases]
        label = f"{refill}, staleness {staleness}"
        axes.plot(shares, waits, STYLES[refill], color=COLOURS[staleness], marker="o", label=label)
    axes.plot(shares, [fleet_waits(result, share) for share in shares], ":", color="tab:grey", label="fleet alone")
    axes.set(xlabel="share of groups that survive the filter", ylabel="share of time the trainer waits", ylim=(0, 1))
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    return path


def write_page(result: Result, shares: list[float]) -> None:
    """The table between the two marks of the page."""
    taken, settings = result.circumstances, result.settings
    where = f"{taken.date[:10]}, {taken.cores} cores, load before {taken.load_before[0]:.1f}"
    lines = [f"{where}; {settings['versions']} versions a run, {settings['seconds']} s in all.", ""]
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text("\n".join([before + MARKS[0], *lines, *table(result, shares), MARKS[1] + after]))


if __name__ == "__main__":
    main()
