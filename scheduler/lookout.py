"""Looking at a fleet and its run: records, reports and backlogs in, one `Observation` out.

For: the scheduler daemon. Not for: deciding (`placements`, `planner`). What slots say of times are ages; here they
become moments of this process's clock, so hosts need no common one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.admission import cap
from broker.contract import RunState
from broker.fleet import Fleet, Wanted
from broker.redis_broker import RedisBroker
from broker.reports import SILENT_S
from broker.streams import SCORED
from scheduler.lifecycle import State
from scheduler.observation import Observation, Service, Slot
from scheduler.planner import WINDOW_S
from scheduler.rates import Rates
from scheduler.survival import Survival

Said = Mapping[str, Any]


@dataclass(slots=True)
class Lookout:
    """What is remembered between two looks."""

    fleet: Fleet
    run: RedisBroker
    groups: int
    """B of the run's settings: what holds until a trainer has opened the run and said so itself."""
    staleness: int
    rates: Rates = field(default_factory=Rates)
    reports: Mapping[str, Said] = field(default_factory=dict[str, Said])
    """What the slots said at the last look."""
    moved: dict[str, int] = field(default_factory=dict[str, int])
    survival: Survival = field(default_factory=Survival)

    async def look(self, now: float) -> tuple[Observation, RunState]:
        """One look. Raises Unavailable."""
        state = await self.run.look()
        records, said = await self.fleet.records(), await self.fleet.said()
        slots = [slot_of(name, record, said.get(name, {}), now) for name, record in sorted(records.items())]
        self.reports = said
        self.note_moves(said)
        self.rates.shapes = shapes_of(said)
        self.rates.observe(slots, now)
        backlog, counts = await self.run.backlog(), (await self.run.books()).counts
        survived = counts.get("train.trained", 0) + backlog[SCORED]
        observation = Observation(
            now=now,
            backlog=backlog,
            slots=slots,
            service=self.rates.service(),
            still=self.rates.still(now),
            groups=state.groups or self.groups,
            cap=state.cap or cap(self.groups, self.staleness),
            staleness=state.staleness if state.cap else self.staleness,
            version=state.live.version if state.live else 0,
            surviving=self.survival.share(survived, counts.get("train.retired.no_signal", 0)),
            moves=tuple(now - age_s for age_s in await self.fleet.moves(WINDOW_S)),
        )
        return observation, state

    def note_moves(self, said: Mapping[str, Said]) -> None:
        """A move that has ended since the last look says what moves to its pool cost."""
        for name, report in said.items():
            moved = int(report.get("moved", 0))
            if moved > self.moved.get(name, moved):
                self.rates.note_move(str(report["pool"]), float(report["move_s"]))
            self.moved[name] = moved


def shapes_of(said: Mapping[str, Said]) -> dict[str, Service]:
    """Pool → how its slots work on several groups at once: the mean of what they say."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for report in said.values():
        for pool, work in report.get("work", {}).items():
            found.setdefault(pool, []).append(work)
    return {
        pool: Service(
            item_s=0.0,
            places=sum(work.get("places", 1.0) for work in works) / len(works),
            half_at=sum(work.get("half_at", 0.0) for work in works) / len(works),
        )
        for pool, works in found.items()
    }


def slot_of(name: str, record: Wanted, said: Said, now: float) -> Slot:
    """A slot from its record and its last report; an order it has not heard of yet counts as begun."""
    age_s = float(said.get("age_s", SILENT_S + 1))
    state = State(said["state"]) if said and age_s <= SILENT_S else State.DEAD
    pool, bound_for = str(said.get("pool", "")), str(said.get("bound_for", ""))
    if state is not State.DEAD and record.epoch > int(said["epoch"]):
        state, pool, bound_for = ordered(state, pool, record.pool)
    work = said.get("work", {}).get(pool, {})
    return Slot(
        id=name,
        pool=pool,
        state=state,
        since=now - age_s - float(said.get("ordered_s", 0.0)),
        bound_for=bound_for,
        drain_by=now - age_s + float(said.get("drain_left_s", 0.0)),
        busy_s=float(work.get("busy_s", 0.0)),
        spent_s=float(work["spent_s"]) if "spent_s" in work else None,
        items=int(work.get("items", 0)),
        holds=int(said.get("held", 0)) > 0,
        epoch=record.epoch,
        pinned=record.pinned,
    )


def ordered(state: State, pool: str, wanted: str) -> tuple[State, str, str]:
    """State, pool and where it is bound, of a slot that is about to hear an order."""
    if pool == wanted:
        return state, pool, ""
    if state in (State.SERVING, State.DRAINING):
        return State.DRAINING, pool, wanted
    return (State.MOVING if wanted else State.VACANT), wanted, ""
