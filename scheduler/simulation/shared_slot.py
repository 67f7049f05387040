"""A slot that works on several groups at once and the faster the more it has (a generation engine, a judge).

For: processor sharing with occupancy-dependent speed, exact between events. Not for: who gives it work (`world`).

With b groups in hand each advances at speed(b)/b. All advance equally, so one number, the progress of an imaginary
group that was always there, tells when each is done: a heap suffices.
"""

from __future__ import annotations

from heapq import heappop, heappush

from scheduler.lifecycle import State
from scheduler.observation import Service


class SharedSlot:
    """One slot, in whatever pool it is."""

    __slots__ = (
        "at",
        "bound_for",
        "busy_s",
        "drain_by",
        "epoch",
        "id",
        "items",
        "jobs",
        "moves_idle",
        "moving_since",
        "places",
        "pool",
        "progress",
        "rate",
        "since",
        "speeds",
        "spent_s",
        "stamp",
        "state",
        "useful_before",
        "useful_s",
    )

    def __init__(self, name: str) -> None:
        self.id = name
        self.pool = ""
        self.state = State.VACANT
        self.since = self.at = self.moving_since = 0.0
        self.bound_for = ""
        self.drain_by = 0.0
        self.moves_idle = True
        self.busy_s = self.spent_s = self.useful_s = self.useful_before = 0.0
        self.items = self.epoch = self.stamp = 0
        self.jobs: list[tuple[float, int, float]] = []
        self.progress = self.rate = 0.0
        self.places = 1
        """Groups it takes at once."""
        self.speeds = [0.0, 1.0]
        """By groups in hand."""

    def enter(self, pool: str, shape: Service) -> None:
        """Work for this pool from now on, empty-handed."""
        self.pool, self.places = pool, int(shape.places)
        self.speeds = [shape.speed(count) for count in range(self.places + 1)]

    def advance(self, now: float) -> None:
        """Bring progress and counters up to now."""
        held, passed = len(self.jobs), now - self.at
        if held and passed > 0:
            self.progress += passed * self.rate
            self.busy_s += passed
            self.useful_s += passed * self.speeds[held]
        self.at = now

    def take(self, group: int, work_s: float, now: float) -> float:
        """Begin a group; when the next one is done."""
        self.advance(now)
        heappush(self.jobs, (self.progress + work_s, group, self.progress))
        return self.next_done()

    def finish(self, now: float) -> int:
        """The group that is done."""
        self.advance(now)
        done, group, begun = heappop(self.jobs)
        self.items += 1
        self.spent_s += done - begun
        return group

    def next_done(self) -> float:
        """When the first of those in hand will be done, if none comes; at least one."""
        held = len(self.jobs)
        self.rate = self.speeds[held] / held
        self.stamp += 1
        return self.at + max(0.0, self.jobs[0][0] - self.progress) / self.rate

    def give_back(self, now: float) -> list[tuple[int, float]]:
        """(group, work left) of all it holds; it holds none afterwards."""
        self.advance(now)
        held = [(group, max(0.0, done - self.progress)) for done, group, _ in sorted(self.jobs)]
        self.jobs.clear()
        self.stamp += 1
        return held
