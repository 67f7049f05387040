"""Synchronous co-location as a placement: all slots generate, then all judge, then one trains, and again.

For: comparing with it on a real fleet (`placement`): `scheduler.placement = "benchmarks.phases:make"`, staleness 0, no
min, no dwell. Not for: anybody's run. In a live fleet one slot trains; the others stay where they are meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.streams import PROMPTS, ROLLOUTS, SCORED
from scheduler.observation import Observation
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.settings import SchedulerSection


@dataclass(frozen=True, slots=True)
class Phases:
    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        slots, backlog = observation.usable, observation.backlog
        if backlog.get(PROMPTS, 0):
            return Targets(split={"rollout": slots}, reason="the batch is generated", insists=True)
        if backlog.get(ROLLOUTS, 0):
            return Targets(split={"judge": slots}, reason="the batch is judged", insists=True)
        if backlog.get(SCORED, 0):
            return Targets(split={"judge": slots - 1, "train": 1}, reason="the batch is trained", insists=True)
        return Targets(split=observation.serving(), reason="nothing is there yet", insists=True)


def make(settings: SchedulerSection) -> Phases:
    return Phases()
