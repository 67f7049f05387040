"""A placement that fails, as an extension may."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.observation import Observation
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.settings import SchedulerSection


class Unruly:
    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        raise ZeroDivisionError(f"{len(pools)} pools and no idea")


def make(settings: SchedulerSection) -> Unruly:
    return Unruly()
