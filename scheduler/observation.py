"""What the scheduler sees at one moment, as a value: backlogs, slots, rates, versions.

For: placements and the planner, which look at nothing else. Not for: gathering it, nor for the screen's view of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.shares import speed
from scheduler.lifecycle import WORKING, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot. Counters only rise, through all its lives and pools."""

    id: str
    pool: str = ""
    """That has it, or that it moves to; while it drains the one it leaves. Empty when vacant."""
    state: State = State.VACANT
    since: float = 0.0
    """When the last move was ordered, seconds."""
    bound_for: str = ""
    """While it drains: where it goes."""
    drain_by: float = 0.0
    """While it drains: when what is left of it is killed, seconds."""
    busy_s: float = 0.0
    """Seconds of work for this pool so far, waiting left out."""
    spent_s: float | None = None
    """What the groups it has finished took of them, each its share of the seconds in which it was one of several in
    hand, at full speed (`Service.speed`); None where nobody counts, and all busy seconds are taken for it."""
    items: int = 0
    """Groups finished for this pool so far."""
    holds: bool = False
    """It has unsettled work."""
    epoch: int = 0
    """Of the record it obeys; a command carries a higher one."""
    pinned: bool = False
    """A person said where it belongs."""

    @property
    def belongs(self) -> str:
        """The pool that has the slot or will have it; empty when it serves nobody."""
        return (self.bound_for if self.state is State.DRAINING else self.pool) if self.state in WORKING else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How one pool works, as measured (`rates`)."""

    item_s: float
    """Busy seconds of one slot per group, at full speed (DS2: waiting is no work)."""
    begun_s: float = 0.0
    """Busy seconds since it last finished something: how far a training step is, which ends many groups at once."""
    move_s: float = 0.0
    """Seconds a slot is lost for when it moves here: spawn, import, load."""
    places: float = 1.0
    """Groups a slot works on at once when there are enough."""
    half_at: float = 0.0
    """Groups in hand at which a slot has half its full speed; 0 when its speed does not depend on them."""

    def speed(self, in_hand: float) -> float:
        """Share of the full speed with so many groups in hand."""
        return speed(in_hand, self.places, self.half_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at a fleet and its run."""

    now: float
    """Seconds, by the clock all times here are taken from."""
    backlog: Mapping[str, int]
    """Work stream → undelivered + pending groups, exact."""
    slots: Sequence[Slot]
    service: Mapping[str, Service]
    """Pool → how it works; a pool that never worked yet is missing."""
    groups: int
    """B, groups per version."""
    cap: int
    """K, groups that may be open at once."""
    staleness: int
    """η. Only to be shown: nothing here changes it, and admission alone keeps it."""
    version: int = 0
    surviving: float = 1.0
    """p, share of scored groups that are trained; the others had no signal."""
    still: frozenset[str] = frozenset()
    """Pools whose slots have done nothing for a while."""
    moves: Sequence[float] = field(default_factory=tuple)
    """When recent moves were ordered, seconds, oldest first."""

    @property
    def usable(self) -> int:
        """Slots whose worker lives and that are not parked."""
        return sum(slot.state in WORKING or slot.state is State.VACANT for slot in self.slots)

    def serving(self) -> dict[str, int]:
        """Pool → slots that it has or will have."""
        counts: dict[str, int] = {}
        for slot in self.slots:
            if pool := slot.belongs:
                counts[pool] = counts.get(pool, 0) + 1
        return counts

    def visits(self, pool_stream: str, last_stream: str) -> float:
        """How often a trained group's like passes that stream: 1/p before the filter, once after it."""
        return 1.0 if pool_stream == last_stream else 1.0 / max(self.surviving, 0.01)
