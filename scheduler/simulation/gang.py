"""The train pool of a simulated fleet as one: its members, the scored groups it may take, the batch in training.

For: which groups make the next step, by the run's own rank rule, and how long it takes. Not for: what a step does to
the run, nor slots as such (`world`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush

from scheduler.simulation.scaling import gang_speed


class Gang:
    """Members join and leave only between two steps; a step takes its groups' seconds over the speed of its members."""

    def __init__(self, groups: int, step_s: float, scaling: float) -> None:
        self.groups, self.step_s, self.scaling = groups, step_s, scaling
        self.members: dict[str, None] = {}
        """In the order they joined."""
        self.ready: list[tuple[int, int]] = []
        """(last version, group) of scored groups, the oldest first."""
        self.open: Counter[int] = Counter()
        """Last version → open groups."""
        self.open_scored: Counter[int] = Counter()
        """Last version → those of them that are scored and in no batch."""
        self.must_come: int | None = None
        """No batch is legal until an open group with at most this last version is scored or closed."""
        self.batch: list[int] = []
        self.began = 0.0
        self.stamp = 0

    @property
    def speed(self) -> float:
        """Of the members together, over that of one slot."""
        return gang_speed(len(self.members), self.scaling)

    def opened(self, last: int) -> None:
        self.open[last] += 1

    def closed(self, last: int) -> None:
        self.open[last] -= 1
        if not self.open[last]:
            del self.open[last], self.open_scored[last]
        self.changed(last)

    def scored(self, group: int, last: int) -> None:
        heappush(self.ready, (last, group))
        self.open_scored[last] += 1
        self.changed(last)

    def changed(self, last: int) -> None:
        """A group with this last version was scored or closed."""
        if self.must_come is not None and last <= self.must_come:
            self.must_come = None

    def takes_batch(self, version: int) -> bool:
        """Take the oldest scored groups into training, if the gang is free and what stays behind stays in bound."""
        if self.batch or not self.members or len(self.ready) < self.groups or self.must_come is not None:
            return False
        self.must_come = last_at_risk(self.left_behind(), version, self.groups)
        if self.must_come is not None:
            return False
        for _ in range(self.groups):
            last, group = heappop(self.ready)
            self.open_scored[last] -= 1
            self.batch.append(group)
        return True

    def left_behind(self) -> dict[int, int]:
        """Last version → open groups, the oldest batch taken away; ascending."""
        missing, left = self.groups, dict[int, int]()
        for last in sorted(self.open):
            taken = min(missing, self.open_scored[last])
            missing -= taken
            left[last] = self.open[last] - taken
        return left

    def begin(self, work_s: float, now: float) -> float:
        """Start the step; when it ends."""
        self.began = now
        self.stamp += 1
        return now + work_s / self.speed + self.step_s

    def end(self) -> list[int]:
        """The step is done: its groups."""
        batch, self.batch = self.batch, []
        return batch

    def abandon(self, open_groups: Mapping[int, int]) -> None:
        """A member died: the batch is scored and not trained."""
        for group in self.end():
            heappush(self.ready, (open_groups[group], group))
            self.open_scored[open_groups[group]] += 1
        self.stamp += 1


def last_at_risk(left: Mapping[int, int], version: int, groups: int) -> int | None:
    """`broker.admission.first_at_risk` for groups that are counted by their last version, ascending: that of the first
    one a step would endanger, None when it is legal. Some thousand open groups need not be gone through one by one."""
    before = 0
    for last, count in left.items():
        before += count
        if count and last < version + 1 + (before - 1) // groups:
            return last
    return None
