"""Who moves slots in a simulated fleet: our scheduler, and what it is compared with.

For: the real placement, rates and planner behind the simulator's `Controller`; a bound nobody can reach; the rule that
watches utilisation. Not for: synchronous co-location, which has no pools (`colocation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from broker.streams import SCORED
from scheduler.forecast import stages, whole_split
from scheduler.observation import Observation, Service, Slot
from scheduler.placements import create
from scheduler.placements.base import Placement, Targets
from scheduler.placements.fixed import Fixed
from scheduler.placements.pressure import Pressure
from scheduler.planner import Decision, Move, Rules, plan
from scheduler.pools import SHIPPED, Pool
from scheduler.rates import Rates
from scheduler.settings import SchedulerSection
from scheduler.simulation.scaling import fluid_slots
from scheduler.simulation.view import reported
from scheduler.simulation.workload import Workload
from scheduler.simulation.world import World
from scheduler.survival import Survival

POOLS = tuple(replace(pool, max=None) for pool in SHIPPED.values())
"""A simulated train pool has as many slots as it is given."""


class Scheduled:
    """The scheduler: observe, targets, plan."""

    moves_are_free = False

    def __init__(
        self,
        name: str,
        placement: Placement,
        load: Workload,
        *,
        rules: Rules | None = None,
        pools: Sequence[Pool] = POOLS,
        every_s: float = 5.0,
    ) -> None:
        self.name, self.placement, self.pools, self.every_s = name, placement, pools, every_s
        self.rules = rules or Rules()
        self.rates = Rates(load.shapes)
        self.survival = Survival()
        self.decisions: list[Decision] = []

    def decide(self, world: World) -> Iterable[Move]:
        slots = reported(world)
        self.rates.observe(slots, world.now)
        observation = self.seen(world, slots)
        decision = plan(observation, self.pools, self.placement.targets(observation, self.pools), self.rules)
        self.decisions.append(decision)
        return decision.moves

    def seen(self, world: World, slots: Sequence[Slot]) -> Observation:
        return Observation(
            now=world.now,
            backlog=dict(world.backlog),
            slots=slots,
            service=self.service(world),
            still=self.rates.still(world.now),
            groups=world.groups,
            cap=world.cap,
            staleness=world.load.staleness,
            version=world.version,
            surviving=self.survival.share(world.trained + world.backlog[SCORED], world.retired),
            moves=tuple(world.moves.recent),
        )

    def service(self, world: World) -> Mapping[str, Service]:
        return self.rates.service()


def ours(load: Workload, settings: SchedulerSection) -> Scheduled:
    """As `[scheduler]` says. Raises Misconfigured for a placement that is not there."""
    made = Scheduled(settings.placement, create(settings), load, rules=Rules.of(settings), every_s=settings.every_s)
    made.rates.memory_s = settings.memory_s
    return made


def static(load: Workload, split: Mapping[str, int]) -> Scheduled:
    """One division for the whole run."""
    return Scheduled("best static split", Fixed(split=split), load, every_s=60.0)


class Oracle(Scheduled):
    """Knows what every open group asks for, and moves in no time and without losing work. `placement` is one of
    `ORACLES`; the oracle of a comparison is the better of them."""

    moves_are_free = True

    def __init__(self, load: Workload, placement: Placement) -> None:
        rules = Rules(dwell_s=0.0, switching=1.0, drain_s=0.0)
        super().__init__("oracle", placement, load, rules=rules)

    def service(self, world: World) -> Mapping[str, Service]:
        """The mean of all open groups: exactly the work that comes next. Training costs what it does in a gang of the
        size that is best for that."""
        known = self.rates.service()
        found: dict[str, Service] = {}
        surviving = self.survival.share(world.trained + world.backlog[SCORED], world.retired)
        rollout, judge, train = world.cargo.mean_work(world.last)
        best = fluid_slots((rollout / surviving, judge / surviving, train), world.cargo.slots, world.load.scaling)[-1]
        train *= max(1.0, best) ** (1 - world.load.scaling)
        for (pool, shape), item_s in zip(world.load.shapes.items(), (rollout, judge, train), strict=True):
            begun = known[pool].begun_s if pool in known else 0.0
            found[pool] = replace(shape, item_s=item_s, begun_s=begun, move_s=0.0)
        return found


@dataclass(frozen=True, slots=True)
class Fluid:
    """The fluid split of what it is told, rounded to whole slots."""

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        line = stages(observation, pools)
        split = whole_split({one.pool.name: one.demand for one in line}, pools, observation.usable)
        return Targets(split=split, reason="the fluid split", insists=True)


ORACLES: tuple[Placement, ...] = (Pressure(), Fluid())


@dataclass(slots=True)
class Utilisation:
    """ "Shrink the least used role a bit": from the pool whose slots are busy least to the one whose are busy most.

    Busy is what a monitor shows: any work in hand.
    """

    gap: float = 0.1
    """Difference of busy shares below which nothing moves."""
    part: float = 1 / 64
    """Of all slots, moved at a time; at least one."""
    before: dict[str, Slot] = field(default_factory=dict[str, Slot])
    at: float = 0.0

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        split = observation.serving()
        busy = self.busy(observation)
        if len(busy) < len(pools):
            even = {pool.name: observation.usable // len(pools) for pool in pools}
            return Targets(split=split if sum(split.values()) else even, reason="not every pool was seen at work yet")
        least, most = min(busy, key=busy.__getitem__), max(busy, key=busy.__getitem__)
        count = min(max(1, round(self.part * observation.usable)), split.get(least, 0) - 1)
        if busy[most] - busy[least] < self.gap or count <= 0:
            return Targets(split=split, reason="all are used alike", insists=True)
        moved = {**split, least: split[least] - count, most: split[most] + count}
        return Targets(split=moved, reason=f"{least} is used {busy[least]:.0%}, {most} {busy[most]:.0%}", insists=True)

    def busy(self, observation: Observation) -> dict[str, float]:
        """Pool → busy share since the last look."""
        passed, sums = observation.now - self.at, dict[str, list[float]]()
        for slot in observation.slots:
            known = self.before.get(slot.id)
            if known is not None and known.pool == slot.pool and known.state is slot.state and passed > 0:
                sums.setdefault(slot.pool, []).append((slot.busy_s - known.busy_s) / passed)
        self.before, self.at = {slot.id: slot for slot in observation.slots}, observation.now
        return {pool: sum(shares) / len(shares) for pool, shares in sums.items() if pool}


def utilisation(load: Workload) -> Scheduled:
    return Scheduled("utilisation rule", Utilisation(), load, every_s=30.0)
