"""`fixed`: the division that a person wrote down, `[scheduler] split = { rollout = 3, train = 1 }`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.observation import Observation
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.settings import SchedulerSection


@dataclass(frozen=True, slots=True)
class Fixed:
    split: Mapping[str, int] = field(default_factory=dict[str, int])
    """Empty: as the slots are now."""

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        if self.split:
            return Targets(split=self.split, reason="the division is fixed", insists=True)
        return Targets(split=observation.serving(), reason="the division is fixed as it is", insists=True)


def make(settings: SchedulerSection) -> Fixed:
    return Fixed(split=settings.split)
