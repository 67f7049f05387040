"""What becomes of a scored group: it goes on, or it leaves with a reason and, when it measured something, a tally."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from broker.errors import Transient
from broker.messages import Delivery, Entry, Group, Kind, Prompt
from broker.outcomes import Forward, Retire
from broker.streams import ROLLOUTS
from consumers.reward_consumer import RewardConsumer
from consumers.rewards.base import Score


class Rewards:
    """A reward that is known beforehand, or an error."""

    capacity, beats = 1, 0

    def __init__(self, *values: float, error: Exception | None = None) -> None:
        self.values, self.error = np.array(values, np.float32), error

    async def start(self) -> None:
        """Ready."""

    async def score(self, group: Group) -> Score:
        if self.error:
            raise self.error
        return Score(rewards=self.values, parts={"known": self.values})

    async def close(self) -> None:
        """Nothing is held."""


def group(kind: Kind, task: str = "sums") -> Group:
    prompt = Prompt(text="1+1=", actions=np.zeros(4, np.int32), size=2, seed=0, task=task)
    return Group(id="sums/0/0", kind=kind, prompt=prompt)


async def outcome(given: Group, rewards: Rewards, *, dynamic_sampling: bool = False) -> Any:
    consumer = RewardConsumer(rewards, lambda found: bool(found.std() > 0), dynamic_sampling=dynamic_sampling)
    entry = Entry(group=given.id, kind=given.kind, task="sums", size=2, floor=0, last_version=1)
    return await consumer(Delivery(stream=ROLLOUTS, entry_id="1-0", entry=entry), given)


async def test_a_scored_group_goes_on_with_its_rewards_and_their_parts() -> None:
    found = await outcome(group("train"), Rewards(1, 0))
    assert isinstance(found, Forward)
    assert found.group.scores is not None
    assert found.group.scores.rewards.tolist() == [1, 0]
    assert found.group.scores.parts["known"].tolist() == [1, 0]


async def test_a_group_without_signal_goes_on_unless_sampling_is_dynamic() -> None:
    assert isinstance(await outcome(group("train"), Rewards(1, 1)), Forward)
    assert await outcome(group("train"), Rewards(1, 1), dynamic_sampling=True) == Retire(reason="no_signal")
    assert isinstance(await outcome(group("train"), Rewards(1, 0), dynamic_sampling=True), Forward)


async def test_an_evaluation_group_ends_here_and_is_tallied_for_its_task() -> None:
    found = await outcome(group("eval"), Rewards(1, 0), dynamic_sampling=True)
    assert found == Retire(reason="evaluated", tally={"n": 1, "reward": 0.5, "n.sums": 1, "reward.sums": 0.5})


@pytest.mark.parametrize("kind", ["eval", "train"])
async def test_a_group_that_ends_here_is_archived_with_its_scores(kind: Kind) -> None:
    found = await outcome(group(kind), Rewards(1, 1), dynamic_sampling=True)
    assert found.group.scores.rewards.tolist() == [1, 1]


async def test_a_group_of_no_task_is_tallied_once() -> None:
    found = await outcome(group("eval", task=""), Rewards(1, 1))
    assert found == Retire(reason="evaluated", tally={"n": 1, "reward": 1.0})


async def test_a_failure_to_score_is_raised_and_never_a_zero() -> None:
    with pytest.raises(Transient, match="the pool is gone"):
        await outcome(group("train"), Rewards(error=Transient("the pool is gone")))
