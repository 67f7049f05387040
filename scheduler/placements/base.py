"""What a placement is: how many slots each pool should have, and why.

For: the seam. Not for: safety (minima, dwell, deadlines, the price of moving), which the planner owns, so that no
placement can break it.

>>> class Halves:
...     def targets(self, observation, pools):
...         half = len(observation.slots) // 2
...         return Targets(split={"rollout": half, "train": len(observation.slots) - half}, reason="half each")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.observation import Observation
from scheduler.pools import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where slots should be."""

    split: Mapping[str, int]
    """Pool → slots; the planner brings it inside minima, maxima and what the fleet has."""
    reason: str
    """One phrase with its numbers."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """What it was decided on, for the record."""
    insists: bool = False
    """Do not weigh what it gains against what moving costs: a person wants it so."""


class Placement(Protocol):
    """A pure rule: the same observation gives the same targets."""

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        """Where slots should be. `pools` in the order work flows, at least one; the fleet may have any N ≥ 0 slots."""
        ...
