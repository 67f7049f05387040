"""Slots of one pool that take groups as room allows, and the groups that wait for them.

For: who gets the next group: the slot with fewest in hand. Not for: working on it (`shared_slot`).
"""

from __future__ import annotations

from collections import deque

from scheduler.lifecycle import State
from scheduler.simulation.shared_slot import SharedSlot


class SharedPool:
    """Slots stand in line by how many they have in hand; outdated entries are passed over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[int] = deque()
        self.roomy: list[deque[SharedSlot]] = []
        """By groups in hand."""

    def offer(self, slot: SharedSlot) -> None:
        """The slot has so many in hand now, and room for more."""
        held = len(slot.jobs)
        if held < slot.places and slot.state is State.SERVING:
            while held >= len(self.roomy):
                self.roomy.append(deque())
            self.roomy[held].append(slot)

    def next_pair(self) -> tuple[int, SharedSlot] | None:
        """A waiting group and the slot that should take it; None when either is lacking."""
        if not self.waiting:
            return None
        for held, line in enumerate(self.roomy):
            while line:
                slot = line.popleft()
                if len(slot.jobs) == held and slot.pool == self.name and slot.state is State.SERVING:
                    return self.waiting.popleft(), slot
        return None
