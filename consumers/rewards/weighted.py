"""A reward made of parts: Σ weight · part, with the parts kept for whoever wants to know why.

For: the arithmetic of parts. Not for: computing one (`rule_pool`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from broker.messages import Group
from consumers.rewards.base import Score


class Scorer(Protocol):
    """Whoever computes parts, not weighted."""

    async def start(self) -> None: ...

    async def score(self, group: Group) -> Mapping[str, NDArray[np.float32]]:
        """(G,) per part."""
        ...

    async def close(self) -> None: ...


class Weighted:
    """See `base.Reward`."""

    def __init__(self, scorer: Scorer, weights: Mapping[str, float]) -> None:
        self.scorer, self.weights = scorer, weights

    async def start(self) -> None:
        await self.scorer.start()

    async def score(self, group: Group) -> Score:
        parts = await self.scorer.score(group)
        rewards = sum((np.float32(self.weights[name]) * values for name, values in parts.items()), np.float32(0))
        return Score(rewards=np.asarray(rewards, np.float32), parts=parts)

    async def close(self) -> None:
        await self.scorer.close()
