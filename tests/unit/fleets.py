"""Fleets for the tests of placements and planner: a small world that obeys moves, and observations made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.lifecycle import Event, State, after, settled
from scheduler.observation import Observation, Service, Slot
from scheduler.planner import Decision, Move
from scheduler.pools import SHIPPED, Pool

POOLS = tuple(replace(pool, max=None) for pool in SHIPPED.values())
COSTS = {"rollout": 6.0, "judge": 1.2, "train": 1.3}


def bounded(**limits: tuple[int, int | None]) -> tuple[Pool, ...]:
    """The three pools with (min, max) of those named."""
    return tuple(
        replace(pool, min=limits[pool.name][0], max=limits[pool.name][1]) if pool.name in limits else pool
        for pool in POOLS
    )


def services(costs: Mapping[str, float] = COSTS, move_s: float = 10.0) -> dict[str, Service]:
    return {pool: Service(item_s=item_s, move_s=move_s) for pool, item_s in costs.items()}


def fleet(counts: Mapping[str, int], *, since: float = 0.0, holds: bool = False) -> tuple[Slot, ...]:
    """So many serving slots of each pool."""
    return tuple(
        Slot(id=f"{pool}-{number}", pool=pool, state=State.SERVING, since=since, holds=holds)
        for pool, count in counts.items()
        for number in range(count)
    )


def seen(
    slots: Sequence[Slot],
    *,
    now: float = 1000.0,
    prompts: int = 0,
    rollouts: int = 0,
    scored: int = 0,
    service: Mapping[str, Service] | None = None,
    moves: Sequence[float] = (),
    surviving: float = 1.0,
) -> Observation:
    groups = 3 * max(1, len(slots))
    return Observation(
        now=now,
        backlog={"prompts": prompts, "rollouts": rollouts, "scored": scored},
        slots=slots,
        service=services() if service is None else service,
        groups=groups,
        cap=4 * groups,
        staleness=3,
        surviving=surviving,
        moves=moves,
    )


@dataclass(slots=True)
class Obedient:
    """Slots that do what they are told, through the lifecycle table, and are told when something happens to them."""

    slots: dict[str, Slot]
    now: float = 0.0
    ordered: list[float] = field(default_factory=list[float])

    @classmethod
    def vacant(cls, count: int) -> Obedient:
        return cls({f"s{number}": Slot(id=f"s{number}") for number in range(count)})

    def obey(self, move: Move) -> None:
        slot = self.slots[move.slot]
        assert move.epoch > slot.epoch, "a command must carry a higher epoch"
        if move.source:
            self.ordered.append(self.now)
        state = after(slot.state, Event.ASSIGNED)
        if state is State.DRAINING:
            slot = replace(slot, state=state, bound_for=move.target, drain_by=move.drain_by)
        else:
            slot = replace(slot, state=state, pool=move.target)
        self.slots[move.slot] = replace(slot, since=self.now, epoch=move.epoch)
        if state is State.DRAINING and not slot.holds:
            self.happens(move.slot, Event.LEFT)

    def happens(self, name: str, event: Event) -> None:
        """An event of the table, with what follows for the slot's pool."""
        slot = self.slots[name]
        state = after(slot.state, event)
        if slot.state is State.DRAINING and state is State.MOVING:
            slot = replace(slot, pool=slot.bound_for, bound_for="", holds=False)
        if state in (State.VACANT, State.DEAD):
            slot = replace(slot, pool="", bound_for="", holds=False)
        if event in (Event.CRASHED, Event.GAVE_UP):
            slot = replace(slot, holds=False)
        self.slots[name] = replace(slot, state=settled(state, slot.pool))

    def overrun(self) -> None:
        """Deadlines that have passed."""
        for slot in list(self.slots.values()):
            if slot.state is State.DRAINING and self.now >= slot.drain_by:
                self.happens(slot.id, Event.OVERRAN)

    def arrive(self) -> None:
        """Everything that drains has left, everything that moves is ready."""
        for slot in list(self.slots.values()):
            if slot.state is State.DRAINING:
                self.happens(slot.id, Event.LEFT)
        for slot in list(self.slots.values()):
            self.happens(slot.id, Event.READY)

    def carry_out(self, decision: Decision, *, only_first: bool = False) -> None:
        for move in decision.moves[:1] if only_first else decision.moves:
            self.obey(move)

    def serving(self, pool: str) -> int:
        return sum(slot.pool == pool and slot.state is State.SERVING for slot in self.slots.values())

    def present(self, pool: str) -> int:
        """Slots in the pool, or on their way into or out of it."""
        working = (State.MOVING, State.SERVING, State.DRAINING)
        return sum(slot.state in working and pool in (slot.pool, slot.bound_for) for slot in self.slots.values())
