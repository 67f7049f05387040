"""Which slots may leave their pools, and in what order: those without work first, then those that came first.

For: the planner. Not for: whether the pool can spare one, nor where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from heapq import heapify, heappop

from scheduler.lifecycle import State
from scheduler.observation import Slot

Place = tuple[bool, float, str, Slot]
"""(holds work, since when, name, slot)"""


class Leaving:
    """Of the slots that serve one of `pools`, are not pinned and `may` leave."""

    def __init__(self, slots: Iterable[Slot], pools: Iterable[str], may: Callable[[Slot], bool]) -> None:
        self.places: dict[str, list[Place]] = {name: [] for name in pools}
        for slot in slots:
            if slot.state is State.SERVING and not slot.pinned and slot.pool in self.places and may(slot):
                self.places[slot.pool].append((slot.holds, slot.since, slot.id, slot))
        for heap in self.places.values():
            heapify(heap)

    def first(self, pool: str, gone: Container[str]) -> Slot | None:
        """The next one, taken off; those `gone` by name are passed over."""
        heap = self.places[pool]
        while heap:
            slot = heappop(heap)[-1]
            if slot.id not in gone:
                return slot
        return None
