"""A reward made of parts: Σ weight · part, with the parts kept for whoever wants to know why.

For: the arithmetic of parts. Not for: computing one (`rule_pool`, `judged`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from broker.cancellation import end
from broker.messages import Group
from consumers.rewards.base import Score


class Scorer(Protocol):
    """Whoever computes parts, not weighted."""

    @property
    def capacity(self) -> int:
        """Groups worth having in hand."""
        ...

    @property
    def beats(self) -> int:
        """Rises while its work advances."""
        ...

    async def start(self) -> None: ...

    async def score(self, group: Group) -> Mapping[str, NDArray[np.float32]]:
        """(G,) per part; may be cancelled at any await."""
        ...

    async def close(self) -> None: ...


class Weighted:
    """See `base.Reward`."""

    def __init__(self, scorers: Sequence[Scorer], weights: Mapping[str, float], most: int) -> None:
        """`weights`: of the parts that count, in the order in which they are added up; what else a scorer answers is
        kept beside them. `most`: groups in hand, whatever the scorers have room for.
        """
        self.scorers, self.weights, self.most = scorers, weights, most

    @property
    def capacity(self) -> int:
        return min(self.most, *(scorer.capacity for scorer in self.scorers))

    @property
    def beats(self) -> int:
        return sum(scorer.beats for scorer in self.scorers)

    async def start(self) -> None:
        await asyncio.gather(*(scorer.start() for scorer in self.scorers))

    async def score(self, group: Group) -> Score:
        """The sum of all parts. A single scorer, as most runs have, needs no task of its own."""
        found = [await self.scorers[0].score(group)] if len(self.scorers) == 1 else await self.side_by_side(group)
        parts = {name: values for one in found for name, values in one.items()}
        rewards = sum((np.float32(weight) * parts[name] for name, weight in self.weights.items()), np.float32(0))
        return Score(rewards=np.asarray(rewards, np.float32), parts=parts)

    async def side_by_side(self, group: Group) -> list[Mapping[str, NDArray[np.float32]]]:
        """What all scorers say; the first failure is the group's."""
        asked = [asyncio.ensure_future(scorer.score(group)) for scorer in self.scorers]
        try:
            return await asyncio.gather(*asked)
        finally:
            await end(asked)

    async def close(self) -> None:
        for scorer in self.scorers:
            await scorer.close()
