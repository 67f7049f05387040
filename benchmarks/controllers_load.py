"""What controllers do in `benchmarks.controllers`, the same under both architectures, and what they note of it.

For: how many controllers of which role, their pace, the parts they add, the moments they note. Not for: how groups
reach them (`controllers_streams`, `controllers_central`), or measuring (`controllers`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from benchmarks.message_sizes import Parts, parts_of
from broker.messages import Rollouts, Scores

Role = Literal["rollout", "reward"]

Pace = Literal["idle", "paced", "saturated"]
"""Nothing to do; a stated rate each; no pause at all."""

Ready = Callable[[], Awaitable[None]]
"""A process tells it once, when it could take work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One case."""

    controllers: int
    """Processes: half of them roll out, half score; a single one does both."""
    body_bytes: int
    """Of a whole group: prompt, rollouts and scores."""
    pace: Pace
    rate: float = 20.0
    """Groups a second that one paced rollout controller offers when it never waits."""
    score_s: float = 0.01
    """Mean service time of a paced reward controller."""
    in_hand: int = 4
    """Groups one controller holds at once, in each of its roles."""
    batch: int = 64
    """B, groups per version."""

    def roles(self) -> list[Sequence[Role]]:
        """Of each controller."""
        if self.controllers == 1:
            return [("rollout", "reward")]
        pair: tuple[Sequence[Role], ...] = (("rollout",), ("reward",))
        return [pair[number % 2] for number in range(self.controllers)]

    @property
    def staleness(self) -> int:
        """η, so that (η+1)·B open groups fill every hand and two batches: the bound never throttles the pace."""
        wanted = self.in_hand * 2 * ((self.controllers + 1) // 2) + 2 * self.batch
        return -(-wanted // self.batch) - 1

    @property
    def room(self) -> int:
        """K, the most groups that may be open."""
        return (self.staleness + 1) * self.batch

    @property
    def offered(self) -> float:
        """Groups a second of all paced controllers."""
        return self.rate * ((self.controllers + 1) // 2)

    def service_s(self, role: Role) -> float:
        """Mean; drawn between a half and one and a half of it for each group."""
        if self.pace != "paced":
            return 0.0
        return self.in_hand / self.rate if role == "rollout" else self.score_s


@dataclass(slots=True)
class Moments:
    """Group → monotonic seconds, the same clock in every process of a machine."""

    forwarded: dict[str, float] = field(default_factory=dict[str, float])
    """Its rollouts are done and leave the controller that made them."""
    taken: dict[str, float] = field(default_factory=dict[str, float])
    """A reward controller has it, whole, and begins."""
    scored: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, other: Moments) -> None:
        self.forwarded |= other.forwarded
        self.taken |= other.taken
        self.scored |= other.scored


@dataclass(slots=True)
class Work:
    """The handler of one controller: a pause instead of a model, then a part of the wanted size."""

    load: Load
    parts: Parts
    moments: Moments = field(default_factory=Moments)

    @classmethod
    def of(cls, load: Load) -> Work:
        return cls(load=load, parts=parts_of(load.body_bytes))

    async def roll_out(self, group: str, version: int) -> Rollouts:
        spans = self.parts.rollouts.spans.copy()
        spans[:, 3] = version
        await self.serve("rollout", group)
        self.moments.forwarded[group] = time.monotonic()
        return replace(self.parts.rollouts, spans=spans)

    async def score(self, group: str, rollouts: Rollouts | None) -> Scores:
        self.moments.taken[group] = time.monotonic()
        if rollouts is None or not np.array_equal(rollouts.offsets, self.parts.rollouts.offsets):
            raise RuntimeError(f"{group} reached its judge without the rollouts that were made")
        await self.serve("reward", group)
        self.moments.scored[group] = time.monotonic()
        return self.parts.scores

    async def serve(self, role: Role, group: str) -> None:
        mean = self.load.service_s(role)
        if mean:
            await asyncio.sleep(mean * random.Random(f"{role} {group}").uniform(0.5, 1.5))
