"""The train pool of a simulated fleet as one: its members, the scored groups it may take, the batch in training.

For: which groups make the next step, by the run's own rank rule, and how long it takes. Not for: what a step does to
the run, nor slots as such (`world`).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from broker.admission import first_at_risk


class Gang:
    """Members join and leave only between two steps; a step takes its groups' seconds, divided by the members."""

    def __init__(self, groups: int, step_s: float) -> None:
        self.groups, self.step_s = groups, step_s
        self.members: dict[str, None] = {}
        """In the order they joined."""
        self.ready: list[tuple[int, int]] = []
        """(last version, group) of scored groups, the oldest first."""
        self.must_come: int | None = None
        """No batch is legal until an open group with at most this last version is scored or closed."""
        self.batch: list[int] = []
        self.began = 0.0
        self.stamp = 0

    def scored(self, group: int, last: int) -> None:
        heappush(self.ready, (last, group))
        self.changed(last)

    def changed(self, last: int) -> None:
        """A group with this last version was scored or closed."""
        if self.must_come is not None and last <= self.must_come:
            self.must_come = None

    def takes_batch(self, open_groups: Mapping[int, int], version: int) -> bool:
        """Take the oldest scored groups into training, if the gang is free and what stays behind stays in bound."""
        if self.batch or not self.members or len(self.ready) < self.groups or self.must_come is not None:
            return False
        batch = [heappop(self.ready) for _ in range(self.groups)]
        taken = {group for _, group in batch}
        left = [last for group, last in open_groups.items() if group not in taken]
        rank = first_at_risk(left, version, self.groups)
        if rank is None:
            self.batch = [group for _, group in batch]
            return True
        self.must_come = sorted(left)[rank]
        for one in batch:
            heappush(self.ready, one)
        return False

    def begin(self, work_s: float, now: float) -> float:
        """Start the step; when it ends."""
        self.began = now
        self.stamp += 1
        return now + work_s / len(self.members) + self.step_s

    def end(self) -> list[int]:
        """The step is done: its groups."""
        batch, self.batch = self.batch, []
        return batch

    def abandon(self, open_groups: Mapping[int, int]) -> None:
        """A member died: the batch is scored and not trained."""
        for group in self.end():
            heappush(self.ready, (open_groups[group], group))
        self.stamp += 1
