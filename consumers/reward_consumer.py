"""From rollouts to scores: the handler of the `rollouts` stream.

For: scoring, ending evaluation groups, and (dynamic sampling) retiring groups that cannot teach anything, whose places
are free at once. Not for: streams (`broker.consume`), or how a reward is computed (`rewards`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from broker.messages import Delivery, Group, Scores
from broker.outcomes import Forward, Outcome, Retire
from consumers.rewards.base import Reward


class RewardConsumer:
    """Handler: see `broker.consume.Handler`."""

    def __init__(
        self, reward: Reward, has_signal: Callable[[NDArray[np.float32]], bool], *, dynamic_sampling: bool
    ) -> None:
        self.reward = reward
        self.has_signal = has_signal
        self.dynamic_sampling = dynamic_sampling

    async def __call__(self, delivery: Delivery, group: Group) -> Outcome:
        score = await self.reward.score(group)
        scored = group.with_scores(Scores(rewards=score.rewards, parts=score.parts))
        if group.kind == "eval":
            sums = tally(float(score.rewards.mean()), group.prompt.task)
            return Retire(reason="evaluated", tally=sums, group=scored)
        if self.dynamic_sampling and not self.has_signal(score.rewards):
            return Retire(reason="no_signal", group=scored)
        return Forward(group=scored)


def tally(reward: float, task: str) -> dict[str, float]:
    """What one evaluated group adds to its version's sums, in all and for its task."""
    whole = {"n": 1, "reward": reward}
    return {**whole, **{f"{name}.{task}": value for name, value in whole.items()}} if task else whole
