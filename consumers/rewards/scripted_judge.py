"""Judge `scripted_judge`: verdicts by rule and by lot, without a model, at a stated pace.

For: paced fleets, where a generative judge's time is looked at and its opinion is not, and tests. Not for: rewarding
anything that shall be learned well.

A verdict says whether a completion is the prompt's answer. Each vote errs with probability 1 − `accuracy`, by the
group's seed, and the majority decides; half the votes are none. Votes are cast one after the other, group after group,
as by a model that is always fully used.
"""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from broker.messages import Group, Rollouts
from broker.settings import Section, load_section
from consumers.rewards.base import Score
from consumers.rewards.exact_match import exact_match

BEAT_S = 0.5
"""Longest sleep: a vote that takes longer shows that it goes on."""


class LaterVotes(Section):
    """What changes while the run goes on."""

    version: int = Field(ge=0)
    """From the groups on whose sampling this weight version, or a later one, began."""
    votes: int = Field(ge=1)
    """Votes on each of them."""


class ScriptedJudgeOptions(Section):
    """Options of this judge."""

    votes: int = Field(default=1, ge=1)
    """Votes on each group; one vote is on all its siblings."""
    pace_s: float = Field(default=0.0, ge=0)
    """Seconds a vote takes."""
    accuracy: float = Field(default=1.0, ge=0, le=1)
    """Probability that a vote on a completion is right."""
    capacity: int = Field(default=2, ge=1)
    """Groups in hand: one is judged, the others wait at hand."""
    later: LaterVotes | None = None
    """Another number mid-way; none keeps it."""


class ScriptedJudge:
    """See `base.Judge`."""

    def __init__(self, **options: object) -> None:
        """Raises Misconfigured for an option that it has not."""
        self.options = load_section(ScriptedJudgeOptions, "reward.parts.options", options)
        self.capacity = self.options.capacity
        self.beats = 0
        self.turn = asyncio.Lock()

    async def start(self) -> None:
        """Nothing is loaded."""

    async def score(self, group: Group) -> Score:
        """Raises ValueError when the prompt has no answer: there is nothing to be right or wrong about."""
        assert group.rollouts is not None
        shares = self.shares(group, group.rollouts)
        async with self.turn:
            await self.work(self.votes(group.rollouts) * self.options.pace_s)
        return Score(rewards=(shares > 0.5).astype(np.float32), parts={"votes": shares})

    def votes(self, rollouts: Rollouts) -> int:
        later = self.options.later
        return later.votes if later and rollouts.oldest_version >= later.version else self.options.votes

    def shares(self, group: Group, rollouts: Rollouts) -> NDArray[np.float32]:
        """(G,) share of the votes that call a sibling right."""
        prompt = group.prompt
        right = [
            exact_match(prompt=prompt.text, completion=text, answer=prompt.answer, meta=prompt.meta) == 1
            for text in rollouts.texts
        ]
        draws = np.random.default_rng([prompt.seed, 1])  # the engine has drawn by the seed itself
        errs = draws.random((self.votes(rollouts), prompt.size)) >= self.options.accuracy
        return (np.array(right, bool) ^ errs).mean(axis=0).astype(np.float32)

    async def work(self, seconds: float) -> None:
        """Sleep, with beats. By the clock, so that many short votes do not add up to more."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            await asyncio.sleep(min(left, self.options.pace_s, BEAT_S))
            self.beats += 1

    async def close(self) -> None:
        """Nothing is held."""
