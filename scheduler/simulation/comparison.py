"""Our scheduler beside what else one could do, on the same groups: figures with their spread over seeds.

For: what `tidemill simulate` shows. Not for: showing it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from scheduler.settings import SchedulerSection
from scheduler.simulation.colocation import colocated
from scheduler.simulation.controllers import ORACLES, Oracle, ours, static, utilisation
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.static_search import best_static
from scheduler.simulation.workload import Cargo, Workload
from scheduler.simulation.world import World

T = TypeVar("T")

STATIC, ORACLE, COLOCATED = "best static split", "oracle", "synchronous co-location"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One workload on one fleet."""

    workload: Workload
    slots: int
    ours: str
    """Name of the placement."""
    static: Mapping[str, int]
    """The best division that never changes."""
    outcomes: Mapping[str, Sequence[Outcome]]
    """System → one outcome per seed."""
    fluid: Sequence[float]
    """Per seed: groups per second if no slot ever idled; nothing can be faster."""

    def mean(self, system: str, figure: str = "groups_per_s") -> float:
        return statistics.fmean(one.figures()[figure] for one in self.outcomes[system])

    def spread(self, system: str, figure: str = "groups_per_s") -> float:
        """Standard deviation over seeds."""
        values = [one.figures()[figure] for one in self.outcomes[system]]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def ratios(self) -> dict[str, float]:
        """Ours against the others; the oracle's gain is taken over the best static split."""
        ours, split, oracle = self.mean(self.ours), self.mean(STATIC), self.mean(ORACLE)
        fluid = statistics.fmean(self.fluid)
        return {
            "of_fluid": ours / fluid,
            "steady_of_fluid": self.mean(self.ours, "steady_groups_per_s") / fluid,
            "over_static": ours / split,
            "oracle_over_static": oracle / split,
            "of_oracles_gain": (ours - split) / (oracle - split) if oracle > split else 1.0,
            "over_colocation": ours / self.mean(COLOCATED),
        }

    def facts(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "workload": self.workload.name,
            "about": self.workload.about,
            "slots": self.slots,
            "groups_per_version": self.workload.groups(self.slots),
            "versions": self.workload.versions,
            "staleness": self.workload.staleness,
            "seeds": len(self.fluid),
            "fluid_groups_per_s": statistics.fmean(self.fluid),
            "best_static_split": dict(self.static),
            "ratios": self.ratios(),
            "systems": {
                system: {
                    figure: {
                        "mean": self.mean(system, figure),
                        "spread": self.spread(system, figure),
                        "each": [one.figures()[figure] for one in found],
                    }
                    for figure in found[0].figures()
                }
                for system, found in self.outcomes.items()
            },
        }


Told = Callable[[str], None]
Played = tuple[Sequence[Outcome], float]
"""Of one seed: every system's outcome, ours first, and the fluid optimum."""


def compare(
    load: Workload,
    slots: int,
    seeds: Sequence[int],
    settings: SchedulerSection,
    told: Told = lambda _: None,
    *,
    processes: int = 1,
) -> Comparison:
    """Play every system on every seed, `processes` seeds at once, ours as `settings` say. The static split is searched
    on the first seed, knowing it whole.
    """
    told(f"{load.name}, {slots} slots: searching the best static split")
    split = best_static(Cargo(load, seeds[0], slots))
    play = partial(played, load, slots, split, settings, seeds[0])
    return gathered(load, slots, settings.placement, split, side_by_side(play, seeds, processes), told)


def side_by_side(play: Callable[[int], T], seeds: Sequence[int], processes: int) -> Iterator[T]:
    """What `play` makes of each seed, in order, `processes` of them at once."""
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        yield from pool.map(play, seeds) if pool else map(play, seeds)


def gathered(
    load: Workload, slots: int, name: str, split: Mapping[str, int], seeds: Iterable[Played], told: Told
) -> Comparison:
    """One comparison of what was played on each seed."""
    outcomes: dict[str, list[Outcome]] = {}
    fluid: list[float] = []
    for found, best in seeds:
        fluid.append(best)
        told(f"{load.name}, {slots} slots: {len(fluid)} seeds played")
        for one in found:
            outcomes.setdefault(one.system, []).append(one)
    return Comparison(workload=load, slots=slots, ours=name, static=split, outcomes=outcomes, fluid=fluid)


def played(
    load: Workload, slots: int, split: Mapping[str, int], settings: SchedulerSection, recorded: int, seed: int
) -> Played:
    """Every system on one seed, and the fluid optimum; `recorded` is the seed whose course is kept."""
    cargo = Cargo(load, seed, slots)
    return list(systems(cargo, split, settings, records=seed == recorded)), cargo.fluid_throughput()


def systems(cargo: Cargo, split: Mapping[str, int], settings: SchedulerSection, *, records: bool) -> Iterator[Outcome]:
    """Ours first."""
    load = cargo.workload
    yield World(cargo, ours(load, settings), records=records).run()
    yield World(cargo, static(load, split)).run()
    yield colocated(cargo)
    yield World(cargo, utilisation(load)).run()
    oracles = [World(cargo, Oracle(load, one)).run() for one in ORACLES]
    yield max(oracles, key=lambda one: one.throughput)
