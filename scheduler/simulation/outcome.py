"""What one simulated run came to.

For: figures of one system on one seed, and its course. Not for: comparing systems (`comparison`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Course = Mapping[str, list[float]]
"""`seconds`, and per pool `slots.POOL`, `backlog.POOL`, `busy.POOL`; `staleness`, `version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run."""

    system: str
    seconds: float
    trained: int
    slots: int
    useful_s: Mapping[str, float]
    """Pool → slot-seconds of work, at full speed."""
    moves: int
    moving_s: float
    """Slot-seconds in which a slot moved: from the order until it could work, work done meanwhile left out."""
    lost_s: float
    """Slot-seconds of useful work that moves cost: of slots that had something to do, and work thrown away."""
    staleness_mean: float
    staleness_max: int
    warm_s: float = 0.0
    """When a fifth of the versions were trained."""
    course: Course = field(default_factory=dict[str, list[float]])

    @property
    def throughput(self) -> float:
        """Trained groups per second."""
        return self.trained / self.seconds

    @property
    def steady(self) -> float:
        """Trained groups per second after a fifth of the versions: without filling the line and learning the rates."""
        return 0.8 * self.trained / (self.seconds - self.warm_s)

    @property
    def busy(self) -> float:
        """Share of all slots' time that was useful work."""
        return sum(self.useful_s.values()) / (self.seconds * self.slots)

    @property
    def switching(self) -> float:
        """Share of all slots' time that went into moves."""
        return self.moving_s / (self.seconds * self.slots)

    @property
    def lost(self) -> float:
        """Share of all slots' time in which moves kept a slot from work."""
        return self.lost_s / (self.seconds * self.slots)

    @property
    def moves_per_hour(self) -> float:
        return self.moves / self.seconds * 3600

    def figures(self) -> dict[str, float]:
        return {
            "groups_per_s": self.throughput,
            "steady_groups_per_s": self.steady,
            "busy_share": self.busy,
            "switching_share": self.switching,
            "lost_share": self.lost,
            "moves_per_slot_hour": self.moves_per_hour / self.slots,
            "staleness_mean": self.staleness_mean,
            "staleness_max": float(self.staleness_max),
            "seconds": self.seconds,
        }
