"""`proportional`: slots in proportion to the work that waits, in slot-seconds. Simple, and late: a backlog must grow
before anything moves, and it says nothing about the work that comes behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.forecast import stages, whole_split
from scheduler.observation import Observation
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.settings import SchedulerSection


@dataclass(frozen=True, slots=True)
class Proportional:
    """Without any work waiting, as it is."""

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        waiting = {one.pool.name: one.queue * one.service.item_s for one in stages(observation, pools)}
        told = ", ".join(f"{name} {seconds:.0f}" for name, seconds in waiting.items())
        split = whole_split(waiting, pools, observation.usable) if any(waiting.values()) else observation.serving()
        return Targets(
            split=split,
            reason=f"slot-seconds of work waiting: {told}",
            numbers={f"waiting_s.{name}": round(seconds, 1) for name, seconds in waiting.items()},
        )


def make(settings: SchedulerSection) -> Proportional:
    return Proportional()
