"""What a reward promises.

For: the seam between the reward consumer and a rule or a model. Not for: weighting parts (`weighted`), deadlines and
process pools (`rule_pool`), or the fate of the group. An infrastructure failure is raised, never answered with 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from broker.messages import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Rewards of a group's siblings and what they are made of."""

    rewards: NDArray[np.float32]
    """(G,)"""
    parts: Mapping[str, NDArray[np.float32]]
    """(G,) per named part, before weighting."""


class Rule(Protocol):
    """A function of one rollout; runs in a worker process with a hard deadline.

    A rule is what a dotted path in `[reward] parts` names, and what the shipped rules are: a function, called with the
    part's options besides these four, or a class, made once per process with the options and then called with the four.
    `completion` is what the engine decoded, special tokens removed.
    """

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: Mapping[str, object]) -> float:
        """The reward of one completion, a finite number. Any exception buries the group after the allowed attempts."""
        ...


class Reward(Protocol):
    """What the reward consumer calls."""

    async def start(self) -> None:
        """Make ready what scoring needs; `score` does it too. Raises Misconfigured when a part cannot be made."""
        ...

    async def score(self, group: Group) -> Score:
        """Raises Transient for the infrastructure's failures (tried again), anything else counts against the group."""
        ...

    async def close(self) -> None: ...
