"""What a slot has done for each pool, over all the lives of its controllers. Counters only rise.

For: adding up heartbeats, each of which counts from its own process's start. Not for: rates (`rates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    busy_s: float = 0.0
    spent_s: float = 0.0
    """What the finished groups took of it, at full speed (`broker.shares`)."""
    items: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            busy_s=self.busy_s + other.busy_s, spent_s=self.spent_s + other.spent_s, items=self.items + other.items
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a controller works on several groups at once, as it said last."""

    places: float = 1.0
    half_at: float = 0.0


@dataclass(slots=True)
class Tally:
    """See the module."""

    before: dict[str, Work] = field(default_factory=dict[str, Work])
    """Pool → what ended lives did."""
    pool: str = ""
    life: Work = field(default_factory=Work)
    """What the living controller has done so far."""
    held: int = 0
    """Groups in its hands."""
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    """Pool → how its controllers work here."""

    def heard(self, pool: str, beat: Mapping[str, Any]) -> None:
        """The living controller's heartbeat."""
        self.pool, self.held = pool, int(beat.get("held", 0))
        busy_s = float(beat.get("busy_s", 0.0))
        spent_s = float(beat.get("spent_s", busy_s))  # whoever does not count it: all busy seconds are taken for it
        self.life = Work(busy_s=busy_s, spent_s=spent_s, items=int(beat.get("items", 0)))
        self.shapes[pool] = Shape(places=float(beat.get("places", 1.0)), half_at=float(beat.get("half_at", 0.0)))

    def over(self) -> None:
        """The controller is dead; the next one counts from 0."""
        if self.pool:
            self.before[self.pool] = self.before.get(self.pool, Work()) + self.life
        self.pool, self.life, self.held = "", Work(), 0

    def work(self) -> dict[str, dict[str, float]]:
        """Pool → seconds and items, the living controller's included, and the shape."""
        whole = dict(self.before)
        if self.pool:
            whole[self.pool] = whole.get(self.pool, Work()) + self.life
        return {pool: facts(done, self.shapes.get(pool, Shape())) for pool, done in whole.items()}


def facts(done: Work, shape: Shape) -> dict[str, float]:
    return {
        "busy_s": round(done.busy_s, 3),
        "spent_s": round(done.spent_s, 3),
        "items": done.items,
        "places": shape.places,
        "half_at": shape.half_at,
    }
