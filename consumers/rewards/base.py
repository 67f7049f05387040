"""What a reward promises, and what its parts do: a rule or a judge.

For: the seam between the reward consumer and whatever scores. Not for: weighting parts (`weighted`), deadlines and
process pools (`rule_pool`, `judged`), or the fate of the group. An infrastructure failure is raised, never answered
with 0.
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


class Judge(Protocol):
    """A model, or whatever else needs a GPU slot, that scores whole groups, several of them at once.

    A judge is a class, which a dotted path beside `on = "slot"` in `[reward] parts` names; the shipped ones are listed.
    It is made once per process, in a thread and with the part's options, so it may load its model there.
    """

    capacity: int
    """Groups worth having in hand: so many calls of `score` run at the same time, for it to make batches of."""
    beats: int
    """Rises with every bit of its work, such as a batch or a vote. While it stands still, groups in hand are not kept:
    they go to another judge after three leases, and the process ends when it stands still for minutes."""

    async def start(self) -> None:
        """Make ready what needs the event loop. Raises Misconfigured when it can never score."""
        ...

    async def score(self, group: Group) -> Score:
        """Rewards of all siblings, not weighted, and what they are made of (votes, criteria), kept as NAME.PART.

        Raises Transient for the infrastructure's failures (tried again), anything else counts against the group. May
        be cancelled at any await: the group goes back to its stream then.
        """
        ...

    async def close(self) -> None: ...


class Reward(Protocol):
    """What the reward consumer calls."""

    @property
    def capacity(self) -> int:
        """Groups worth having in hand, once started."""
        ...

    @property
    def beats(self) -> int:
        """Rises while the groups in hand advance."""
        ...

    async def start(self) -> None:
        """Make ready what scoring needs; `score` does it too. Raises Misconfigured when a part cannot be made."""
        ...

    async def score(self, group: Group) -> Score:
        """Raises Transient for the infrastructure's failures (tried again), anything else counts against the group."""
        ...

    async def close(self) -> None: ...
