"""`tidemill simulate`: which placement would keep a fleet busy, tried on virtual slots before any GPU is spent.

For: arguments into workloads, and a comparison into a table, JSON and a picture. Not for: the simulation
(`scheduler.simulation`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from broker.errors import Misconfigured
from deploy.recorded_load import recorded_load
from deploy.run_check import saved_run
from deploy.simulation_picture import draw_comparison
from scheduler.placements import create
from scheduler.settings import SchedulerSection
from scheduler.simulation.comparison import Comparison, Told, compare
from scheduler.simulation.workload import Workload
from scheduler.simulation.workloads import WORKLOADS, workload_named

WORTH_NAMING = 1.02
"""An oracle that gains less shows that no placement could do much."""
FEWEST_SLOTS, MOST_SLOTS = 3, 10_000


def loads_named(names: Sequence[str], trace: Path | None, slots: int, versions: int, move_s: float) -> list[Workload]:
    """The workloads to simulate. Raises Misconfigured for a name that leads to none or numbers that make no run."""
    if not FEWEST_SLOTS <= slots <= MOST_SLOTS:
        raise Misconfigured(
            f"--slots {slots}: static splits of three pools need {FEWEST_SLOTS} to {MOST_SLOTS} slots; "
            "nothing was simulated; ask for a number in between"
        )
    if versions < 0 or 0 < versions < 5:
        raise Misconfigured(f"--versions {versions} is no run; nothing was simulated; ask for 5 or more")
    if trace is not None:
        found = [recorded_load(trace, slots)]
    elif "all" in names:
        found = list(WORKLOADS.values())
    else:
        found = [workload_named(name) for name in names]
    if versions and trace is None:
        found = [load.shortened(versions) for load in found]
    if move_s >= 0:
        found = [replace(load, shapes=with_move_s(load, move_s)) for load in found]
    return found


def scheduler_of(placement: str, trace: Path | None) -> SchedulerSection:
    """A placement under the default settings, or under those of the recorded run. Raises Misconfigured."""
    recorded = saved_run(trace).scheduler if trace is not None else SchedulerSection()
    settings = recorded.model_copy(update={"placement": placement})
    create(settings)
    return settings


def with_move_s(load: Workload, move_s: float) -> dict[str, object]:
    return {pool: replace(shape, move_s=move_s) for pool, shape in load.shapes.items()}


def perform(
    loads: Sequence[Workload],
    slots: int,
    seeds: int,
    settings: SchedulerSection,
    out: Path | None,
    console: Console,
    told: Told,
    *,
    as_json: bool,
) -> None:
    """Simulate each workload; tables or JSON to the terminal, JSON and pictures into `out`; `told` hears what is done
    meanwhile.
    """
    comparisons: list[Comparison] = []
    for load in loads:
        one = compare(load, slots, range(seeds), settings, told)
        comparisons.append(one)
        if not as_json:
            console.print(table_of(one))
    facts = [one.facts() for one in comparisons]
    if as_json:
        print(json.dumps(facts, indent=1))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "simulation.json").write_text(json.dumps(facts, indent=1) + "\n")
        pictures = [draw_comparison(one, out / f"{one.workload.name}-{one.slots}.png") for one in comparisons]
        if not as_json:
            console.print(f"wrote {out / 'simulation.json'} and {', '.join(map(str, pictures))}", highlight=False)


def table_of(one: Comparison) -> Table:
    """Systems by throughput, ours among them."""
    ratios = one.ratios()
    split = ", ".join(f"{pool} {count}" for pool, count in one.static.items())
    warm = "" if one.workload.drifts else f" ({ratios['steady_of_fluid']:.1%} after the first fifth)"
    table = Table(
        title=f"{one.workload.name}, {one.slots} slots: {one.workload.about}",
        caption=(
            f"{one.ours}: {ratios['of_fluid']:.1%} of the fluid optimum{warm}, {ratios['over_static']:.2f} of the best "
            f"static split ({split}), {gained(ratios)}; {ratios['over_colocation']:.2f} of synchronous co-location"
        ),
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    columns = ("system", "groups/s", "±", "busy", "moving", "work lost", "moves per slot and hour", "staleness, max")
    for name in columns:
        table.add_column(name, justify="left" if name == "system" else "right")
    for system in sorted(one.outcomes, key=lambda name: -one.mean(name)):
        table.add_row(
            f"[bold]{system}[/]" if system == one.ours else system,
            f"{one.mean(system):.3f}",
            f"{one.spread(system):.3f}",
            f"{one.mean(system, 'busy_share'):.1%}",
            f"{one.mean(system, 'switching_share'):.2%}",
            f"{one.mean(system, 'lost_share'):.2%}",
            f"{one.mean(system, 'moves_per_slot_hour'):.2f}",
            f"{one.mean(system, 'staleness_mean'):.2f}, {max(o.staleness_max for o in one.outcomes[system])}",
        )
    return table


def gained(ratios: Mapping[str, float]) -> str:
    """What part of the oracle's gain is reached, where there is one to speak of."""
    over = ratios["oracle_over_static"]
    if over < WORTH_NAMING:
        return f"of which the oracle itself reaches {over:.2f}"
    return f"{ratios['of_oracles_gain']:.0%} of what the oracle gains over it ({over - 1:.0%})"
