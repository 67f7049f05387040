"""What is due when in a simulated world. For: order in time, ties in the order they were made. Not for: doing it."""

from __future__ import annotations

from heapq import heappop, heappush

Due = tuple[float, int, str, str, int]
"""(when, number, kind, the slot it happens to or empty, what it refers to: one whose stamp has passed is not meant any
more)"""


class Agenda:
    def __init__(self) -> None:
        self.events: list[Due] = []
        self.number = 0

    def add(self, when: float, kind: str, name: str = "", stamp: int = 0) -> None:
        self.number += 1
        heappush(self.events, (when, self.number, kind, name, stamp))

    def next(self) -> Due:
        """The earliest, taken off."""
        return heappop(self.events)
