"""The simulator fed what the paced fleet is made of: its prediction of each placement's throughput.

For: `placement`. Not for: measuring (`paced_fleet`). Stated beside the work itself: a move takes `MOVE_S`, a published
version `STEP_S`; a group's tokens differ by `SPREAD`, as the sum of four even draws does; both groups in hand of a slot
share it, where the paced engine serves one after the other: the same throughput.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.paced_fleet import (
    CHANGE,
    COLOCATED,
    DWELL_S,
    EVERY_S,
    GROUPS,
    HORIZON_S,
    MEMORY_S,
    OURS,
    SLOTS,
    STALENESS,
    STATIC,
    STEPS,
    TAKES,
    TRIPLES,
    Figures,
    throughputs,
)
from scheduler.observation import Service
from scheduler.placements.fixed import Fixed
from scheduler.placements.pressure import make
from scheduler.planner import Rules
from scheduler.pools import SHIPPED
from scheduler.rates import Rates
from scheduler.settings import SchedulerSection
from scheduler.simulation.colocation import colocated
from scheduler.simulation.controllers import Scheduled
from scheduler.simulation.workload import Cargo, Curve, Workload
from scheduler.simulation.world import World

MOVE_S, STEP_S, SPREAD = 1.5, 0.03, 0.18


def load(change: str) -> Workload:
    """Groups are begun up to η versions before they are trained, and what they cost is decided then."""
    shape = Service(item_s=0.0, move_s=MOVE_S, places=2.0)
    return Workload(
        name=change,
        about="the paced fleet",
        versions=STEPS,
        groups_per_slot=GROUPS / SLOTS,
        staleness=STALENESS,
        spread=SPREAD,
        costs={pool: curve(seconds, tripled=pool in TRIPLES[change]) for pool, seconds in TAKES.items()},
        step_s=STEP_S,
        shapes={"rollout": shape, "judge": shape, "train": Service(item_s=0.0, move_s=MOVE_S)},
        switch_s=0.0,
    )


def curve(seconds: float, *, tripled: bool) -> Curve:
    changed = (CHANGE + STALENESS - 0.5) / (STEPS - 1)
    return (
        (0.0, seconds),
        (changed - 1e-6, seconds),
        (changed, seconds * (3 if tripled else 1)),
        (1.0, seconds * (3 if tripled else 1)),
    )


class Timed(World):
    """Remembers when each version was trained."""

    def __init__(self, cargo: Cargo, controller: Scheduled) -> None:
        super().__init__(cargo, controller)
        self.trained_at: dict[int, float] = {}

    def on_step(self, _name: str, stamp: int) -> None:
        super().on_step(_name, stamp)
        self.trained_at.setdefault(self.version, self.now)


def predicted(case: str, change: str, seed: int = 0) -> Figures:
    """Throughputs, as `paced_fleet.measured` says them."""
    work = load(change)
    cargo = Cargo(work, seed, SLOTS)
    if case == COLOCATED:
        free, paid = (colocated(Cargo(replace(work, switch_s=switch_s), seed, SLOTS)) for switch_s in (0.0, MOVE_S))
        return {"whole_groups_per_s": round(free.throughput, 3), "switched_groups_per_s": round(paid.throughput, 3)}
    settings = SchedulerSection(horizon_s=HORIZON_S, every_s=EVERY_S, dwell_s=DWELL_S)
    controller = Scheduled(
        case,
        make(settings) if case == OURS else Fixed(split=STATIC[case]),
        work,
        rules=Rules(horizon_s=HORIZON_S, dwell_s=DWELL_S, drain_s=15.0),
        pools=tuple(replace(pool, min=1) for pool in SHIPPED.values()),
        every_s=EVERY_S,
    )
    controller.rates = Rates(work.shapes, memory_s=MEMORY_S)
    world = Timed(cargo, controller)
    world.run()
    return throughputs(world.trained_at)
