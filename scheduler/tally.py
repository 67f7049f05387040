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
    items: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(busy_s=self.busy_s + other.busy_s, items=self.items + other.items)


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

    def heard(self, pool: str, beat: Mapping[str, Any]) -> None:
        """The living controller's heartbeat."""
        self.pool, self.held = pool, int(beat.get("held", 0))
        self.life = Work(busy_s=float(beat.get("busy_s", 0.0)), items=int(beat.get("items", 0)))

    def over(self) -> None:
        """The controller is dead; the next one counts from 0."""
        if self.pool:
            self.before[self.pool] = self.before.get(self.pool, Work()) + self.life
        self.pool, self.life, self.held = "", Work(), 0

    def work(self) -> dict[str, dict[str, float]]:
        """Pool → busy seconds and items, the living controller's included."""
        whole = dict(self.before)
        if self.pool:
            whole[self.pool] = whole.get(self.pool, Work()) + self.life
        return {pool: {"busy_s": round(done.busy_s, 3), "items": done.items} for pool, done in whole.items()}
