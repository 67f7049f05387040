"""What our scheduler is worth on simulated fleets, beside the best static split, co-location, a rule and an oracle.

    make bench-simulation                                         # 64 slots, every workload, ten seeds: ten minutes
    make bench-simulation ARGS="--slots 1024 --versions 120"      # two hours of one core; --processes 4 shares them

Writes the figures, the tables of `benchmarks/placement.md` and the pictures of `docs/images/`, anew after each one.
What was played is kept in `build/simulation/`: the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.result import Circumstances, Result, circumstances
from benchmarks.simulation_parts import OURS, ROOT, compared
from deploy.simulation_picture import draw_comparison
from scheduler.simulation.comparison import COLOCATED, ORACLE, STATIC, Comparison
from scheduler.simulation.workloads import WORKLOADS, workload_named

PAGE = ROOT / "benchmarks" / "placement.md"
IMAGES = ROOT / "docs" / "images"
KEPT = ROOT / "build" / "simulation"
PICTURES = ("drift", "judge-heavy")
COLUMNS = {
    "of fluid": "of_fluid",
    "warm, of fluid": "steady_of_fluid",
    "over static": "over_static",
    "oracle over static": "oracle_over_static",
    "of oracle's gain": "of_oracles_gain",
    "over co-location": "over_colocation",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1, help="seeds played at once")
    given = parser.parse_args()
    taken, found, seconds = circumstances(), list[Comparison](), 0.0
    for name in given.workloads:
        load = workload_named(name).shortened(given.versions)
        one, took_s = compared(load, given.slots, range(given.seeds), KEPT, processes=given.processes)
        seconds += took_s
        found.append(one)
        write(found, seconds, taken)


def write(found: list[Comparison], seconds: float, taken: Circumstances) -> None:
    """What was found so far: figures, tables, the last one's picture."""
    last = found[-1]
    slots = last.slots
    result = Result(
        name="simulation" if slots == 64 else f"simulation-{slots}",
        measures=f"simulated fleets of {slots} slots, {len(last.fluid)} seeds, {last.workload.versions} versions",
        circumstances=taken,
        settings={"seconds": seconds, "static": {one.workload.name: dict(one.static) for one in found}},
        samples={f"{one.workload.name}, {system}": each(one, system) for one in found for system in one.outcomes},
        arguments=" ".join(sys.argv[1:]),
    )
    result.save("; ".join(map(headline, found)) + f" ({seconds:.0f} s)")
    write_section(slots, [*lines(found, seconds)])
    if last.workload.name in PICTURES and slots == 64:
        IMAGES.mkdir(parents=True, exist_ok=True)
        print(draw_comparison(last, IMAGES / f"placement-{last.workload.name}.png"))


def each(one: Comparison, system: str) -> dict[str, list[float]]:
    figures = [outcome.figures() for outcome in one.outcomes[system]]
    return {name: [figure[name] for figure in figures] for name in figures[0]} | {"fluid_groups_per_s": list(one.fluid)}


def headline(one: Comparison) -> str:
    ratios = one.ratios()
    gain = f", {ratios['of_oracles_gain']:.0%} of the oracle's gain" if meaning(one, "of_oracles_gain") else ""
    return (
        f"{one.workload.name}: {ratios['over_static']:.2f} of the best static split{gain}, "
        f"{one.mean(OURS, 'switching_share'):.1%} moving"
    )


def lines(found: list[Comparison], seconds: float) -> list[str]:
    """Two tables: throughput of every system, and ours against them."""
    load, seeds = found[0].workload, len(found[0].fluid)
    systems = [OURS, STATIC, "utilisation rule", COLOCATED, ORACLE]
    rows = [
        f"{seeds} seeds, {load.versions} versions of {load.groups(found[0].slots)} groups; {seconds:.0f} s on a core.",
        "",
        "Trained groups a second, mean ± standard deviation over seeds:",
        "",
        f"| workload | {' | '.join(systems)} | fluid optimum |",
        f"| --- |{' ---: |' * (len(systems) + 1)}",
    ]
    for one in found:
        cells = [f"{one.mean(system):.3f} ± {one.spread(system):.3f}" for system in systems]
        rows.append(f"| {one.workload.name} | {' | '.join(cells)} | {sum(one.fluid) / seeds:.3f} |")
    rows += [
        "",
        "`pressure` against them, its moves, and the staleness of what it trained:",
        "",
        f"| workload | {' | '.join([*COLUMNS, 'moving', 'work lost', 'moves a slot and hour'])} | staleness (bound) |",
        f"| --- |{' ---: |' * (len(COLUMNS) + 4)}",
    ]
    return rows + [row(one) for one in found]


def row(one: Comparison) -> str:
    ratios = one.ratios()
    shown = [
        f"{ratios[key]:.2f}" if "over" in key else f"{ratios[key]:.1%}" if meaning(one, key) else "–"
        for key in COLUMNS.values()
    ]
    stale = max(outcome.staleness_max for outcome in one.outcomes[OURS])
    return (
        f"| {one.workload.name} | {' | '.join(shown)} | {one.mean(OURS, 'switching_share'):.2%} | "
        f"{one.mean(OURS, 'lost_share'):.2%} | "
        f"{one.mean(OURS, 'moves_per_slot_hour'):.2f} | "
        f"{one.mean(OURS, 'staleness_mean'):.2f}, {stale} ({one.workload.staleness}) |"
    )


def meaning(one: Comparison, key: str) -> bool:
    """Whether the figure says something: warm throughput only without drift, a gain only where there is one."""
    return not (key == "steady_of_fluid" and one.workload.drifts) and not (
        key == "of_oracles_gain" and one.ratios()["oracle_over_static"] < 1.02
    )


def write_section(slots: int, content: list[str]) -> None:
    """Between this fleet size's two marks of the page."""
    begin, end = f"<!-- {slots} slots: written by the benchmark -->", f"<!-- end of {slots} slots -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text("\n".join([before + begin, *content, end + after]))


if __name__ == "__main__":
    main()
