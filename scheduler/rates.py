"""True service rates, from what slots have done: busy seconds per group, moving averages, seconds a move costs.

For: turning two observations' counters into rates (DS2, OSDI'18: rate = items / *useful* time; queue sizes or
utilisation alone oscillate). Not for: what to do with them (`placements`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.observation import Service, Slot

MEMORY_S = 120.0
"""After so long a measurement weighs 1/e."""
MEMORY_MOVES = 5.0
"""A pool's move cost is a mean over about so many moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Decayed sums of one pool."""

    busy_s: float = 0.0
    items: float = 0.0
    waiting_s: float = 0.0
    """Busy seconds not counted yet: no group has been finished since. A training step takes long and ends many."""
    at: float = 0.0
    """When a group was last finished."""

    @property
    def item_s(self) -> float | None:
        return self.busy_s / self.items if self.items > 0 else None

    def with_work(self, worked_s: float, items: int, now: float, memory_s: float) -> Tally:
        """So many seconds and finished groups later."""
        waiting = self.waiting_s + worked_s
        if items == 0:
            return replace(self, waiting_s=waiting)
        keep = math.exp((self.at - now) / memory_s)
        return Tally(busy_s=self.busy_s * keep + waiting, items=self.items * keep + items, at=now)


@dataclass(slots=True)
class Rates:
    """Rates of every pool, brought up to date by each look at the slots.

    >>> rates = Rates({"rollout": Service(item_s=0.0, places=8, half_at=1)})
    >>> rates.observe(slots, now)
    >>> rates.service()["rollout"].item_s
    """

    shapes: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """Pool → places and half_at of its slots; what it says about seconds is not used, but for `move_s` until a move was
    seen."""
    memory_s: float = MEMORY_S
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    move_s: dict[str, float] = field(default_factory=dict[str, float])
    before: dict[str, Slot] = field(default_factory=dict[str, Slot])

    def observe(self, slots: Sequence[Slot], now: float) -> None:
        """Count what every slot did since the last look."""
        worked: dict[str, float] = {}
        finished: dict[str, int] = {}
        for slot in slots:
            known = self.before.get(slot.id)
            if known is not None and known.pool == slot.pool and slot.busy_s >= known.busy_s:
                worked[slot.pool] = worked.get(slot.pool, 0.0) + self.full_speed_s(known, slot)
                finished[slot.pool] = finished.get(slot.pool, 0) + slot.items - known.items
        for pool, seconds in worked.items():
            self.tallies[pool] = self.tallies.get(pool, Tally()).with_work(seconds, finished[pool], now, self.memory_s)
        self.before = {slot.id: slot for slot in slots}

    def full_speed_s(self, before: Slot, after: Slot) -> float:
        """Seconds a fully occupied slot would have taken for what this one did between two looks."""
        busy = after.busy_s - before.busy_s
        shape = self.shapes.get(after.pool)
        if shape is None or busy <= 0 or before.filled_s is None or after.filled_s is None:
            return busy
        return busy * shape.speed(shape.places * (after.filled_s - before.filled_s) / busy)

    def note_move(self, pool: str, seconds: float) -> None:
        """A slot that moved to `pool` took so long from the end of its drain until it could work."""
        known = self.move_s.get(pool)
        self.move_s[pool] = seconds if known is None else known + (seconds - known) / MEMORY_MOVES

    def service(self) -> dict[str, Service]:
        """Every pool that has finished something, as measured."""
        found: dict[str, Service] = {}
        for pool, tally in self.tallies.items():
            if tally.item_s is not None:
                shape = self.shapes.get(pool, Service(item_s=0.0))
                move_s = self.move_s.get(pool, shape.move_s)
                found[pool] = replace(shape, item_s=tally.item_s, begun_s=tally.waiting_s, move_s=move_s)
        return found
