"""What each group took of its slot's time while several were worked on at once.

For: the meter of a process, and the one formula of speed by occupancy, which a scheduler uses too. Not for: which
groups are in hand, or rates over many slots (`scheduler.rates`).

Processor sharing: with n in hand each advances at speed(n)/n. All advance equally, so one number, the progress of an
imaginary group that was always in hand, tells what each took between its begin and its end. What is approximated:
groups in hand at once are taken to share alike, long ones with short ones; and where `half_at` is not known every
second with anything in hand counts as one at full speed, so a slot that is rarely full looks slower than it could be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass


def speed(in_hand: float, places: float, half_at: float) -> float:
    """Share of the full speed with so many groups in hand: in_hand/(in_hand + half_at), 1 at `places`."""
    held = min(in_hand, places)
    if held <= 0:
        return 0.0
    if half_at == 0:
        return min(1.0, held)
    return held / (held + half_at) * (places + half_at) / places


@dataclass(slots=True)
class Share:
    """Of groups that are begun and ended together."""

    seconds: float = 0.0
    """What they took of the slot's time, at full speed; known when they have ended."""


@dataclass(slots=True)
class Shares:
    """Splits the time of one process among the groups in its hands.

    >>> with shares.taking() as share:
    ...     work()
    >>> share.seconds
    """

    clock: Callable[[], float]
    places: float = 1.0
    """Groups that are worked on at once when there are enough."""
    half_at: float = 0.0
    """Groups in hand at half the full speed; 0 when the speed does not depend on them, or it is not known."""
    in_hand: int = 0
    progress: float = 0.0
    at: float = 0.0
    """When progress was last brought up to date."""

    @contextlib.contextmanager
    def taking(self, groups: int = 1) -> Generator[Share]:
        """So many groups are in hand inside."""
        self.advance()
        self.in_hand += groups
        share, begun = Share(), self.progress
        try:
            yield share
        finally:
            self.advance()
            self.in_hand -= groups
            share.seconds = groups * (self.progress - begun)

    def advance(self) -> None:
        now = self.clock()
        if self.in_hand:
            self.progress += (now - self.at) * speed(self.in_hand, self.places, self.half_at) / self.in_hand
        self.at = now
