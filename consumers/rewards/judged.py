"""A judge as one part of a reward: watched while it works, its answer checked.

For: what every judge would have to do itself. Not for: judging (`base.Judge`), weights (`weighted`), or which groups
are in its hands (the consuming loop).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.cancellation import end
from broker.errors import Broken, Poison
from broker.messages import Group
from consumers.rewards.base import Judge, Score


class JudgeFailed(Exception):
    """A judge answered something else than one finite number per sibling."""


@dataclass(slots=True)
class Judged:
    """See `weighted.Scorer`: the rewards under the judge's name, what they are made of under NAME.PART."""

    name: str
    judge: Judge
    patience_s: float = 300.0
    """A judge that shows no beat for so long while a group waits counts as hanging."""

    @property
    def capacity(self) -> int:
        return self.judge.capacity

    @property
    def beats(self) -> int:
        return self.judge.beats

    async def start(self) -> None:
        await self.judge.start()

    async def score(self, group: Group) -> Mapping[str, NDArray[np.float32]]:
        """Raises whatever the judge raises, JudgeFailed for an answer that is none, Broken when it hangs."""
        if group.rollouts is None:
            raise Poison(f"group {group.id} has no rollouts to judge; it is buried; judge what rollout producers send")
        found = await self.verdict(group)
        parts = {self.name: found.rewards, **{f"{self.name}.{part}": values for part, values in found.parts.items()}}
        return {part: self.checked(part, values, group) for part, values in parts.items()}

    async def verdict(self, group: Group) -> Score:
        """waits for: the judge   unblocked by: its answer, or `patience_s` without a beat"""
        asked = asyncio.ensure_future(self.judge.score(group))
        try:
            while not asked.done():
                beats = self.judge.beats
                await asyncio.wait((asked,), timeout=self.patience_s)
                if not asked.done() and beats == self.judge.beats:
                    raise Broken(
                        f"judge {self.name} has shown no beat for {self.patience_s:g} s while {group.id} waits; the "
                        "process stops and its groups go to other judges; its log says what it was doing"
                    )
            return asked.result()
        finally:
            await end([asked])

    def checked(self, part: str, values: object, group: Group) -> NDArray[np.float32]:
        """(G,) finite numbers; anything else is never taken for a reward."""
        numbers = np.asarray(values, np.float32)
        if numbers.shape != (group.prompt.size,) or not np.isfinite(numbers).all():
            raise JudgeFailed(
                f"judge {part} answered {numbers!r} for the {group.prompt.size} siblings of group {group.id}, not one "
                "finite number each; it is tried again, then buried; mend the judge"
            )
        return numbers

    async def close(self) -> None:
        await self.judge.close()
