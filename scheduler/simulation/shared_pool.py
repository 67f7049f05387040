"""Slots of one pool that take groups as room allows, and the groups that wait for them.

For: who gets the next group: the slot with fewest in hand. Not for: working on it (`shared_slot`).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from scheduler.lifecycle import State
from scheduler.simulation.shared_slot import SharedSlot


class SharedPool:
    """The emptiest slot is found in a heap whose outdated entries are passed over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[int] = deque()
        self.roomy: list[tuple[int, int, SharedSlot]] = []
        self.offers = 0

    def offer(self, slot: SharedSlot) -> None:
        """The slot has so many in hand now, and room for more."""
        if slot.room > 0 and slot.state is State.SERVING:
            self.offers += 1
            heappush(self.roomy, (len(slot.jobs), self.offers, slot))

    def next_pair(self) -> tuple[int, SharedSlot] | None:
        """A waiting group and the slot that should take it; None when either is lacking."""
        while self.waiting and self.roomy:
            held, _, slot = heappop(self.roomy)
            if slot.pool == self.name and slot.state is State.SERVING and len(slot.jobs) == held and slot.room > 0:
                return self.waiting.popleft(), slot
        return None
