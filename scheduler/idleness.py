"""Which slots have nothing to do, and whether work somewhere else would fill one: moving such a slot loses nothing.

For: the planner, which lets these slots go at any time. Not for: where they should go (`placements`).

Work is pulled, so a slot that serves and holds nothing found nothing, as long as no more waits for its pool than its
neighbours have room for. The last pool takes whole batches: below one there is nothing to do for any of its slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scheduler.forecast import Stage
from scheduler.lifecycle import State
from scheduler.observation import Observation, Slot
from scheduler.worth import move_s


class Idleness:
    """Of one observation. `line` in the order work flows, at least one."""

    def __init__(self, observation: Observation, line: Sequence[Stage]) -> None:
        self.stages: Mapping[str, Stage] = {one.pool.name: one for one in line}
        self.last = line[-1].pool.name
        self.batch = max(1, min(observation.groups, sum(one.queue for one in line)))
        self.at_work = Counter(slot.pool for slot in observation.slots if slot.state is State.SERVING and slot.holds)

    def idles(self, slot: Slot) -> bool:
        """It serves a pool that has no work for it."""
        stage = self.stages.get(slot.pool)
        if slot.state is not State.SERVING or slot.holds or stage is None:
            return False
        if slot.pool == self.last:
            return stage.queue < self.batch
        return stage.queue <= self.at_work[slot.pool] * stage.service.places

    def fills(self, pool: str, slots: int) -> bool:
        """What waits for the pool keeps each of so many slots busy for longer than a move there takes."""
        stage = self.stages[pool]
        if pool == self.last and stage.queue < self.batch:
            return False
        return stage.queue * stage.service.item_s > slots * move_s(stage.pool, stage.service)
