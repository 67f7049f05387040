"""What every listed judge keeps, through what the reward makes of it; a listed judge without a case here fails."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from broker.errors import Misconfigured
from broker.messages import Group
from consumers.rewards import JUDGES, REWARDS, create
from consumers.rewards.scripted_judge import ScriptedJudge
from consumers.rewards.weighted import Weighted
from consumers.settings import RewardPart, RewardSection
from producers.prompt_sources.base import SourcePrompt
from tests.contract.test_rewards import group

CASES: dict[str, dict[str, Any]] = {"scripted_judge": {"votes": 3, "pace_s": 0.001, "accuracy": 0.7}}
"""Options."""

SUM = SourcePrompt(text="40+2=", answer="42")


def numbered(number: int, *completions: str) -> Group:
    """A group with a name and a seed of its own."""
    made = group(SUM, *(completions or ("42", "24", "42", "4")))
    return replace(made, id=f"x/0/{number}", prompt=replace(made.prompt, seed=number))


def reward_of(*parts: RewardPart) -> Weighted:
    return create(RewardSection(parts=list(parts), timeout_s=30))


def test_no_name_is_both_a_rule_and_a_judge() -> None:
    assert not REWARDS.keys() & JUDGES.keys()


@pytest.mark.parametrize("name", sorted(JUDGES))
async def test_a_listed_judge_says_the_same_of_a_group_whoever_waits_beside_it(name: str) -> None:
    reward = reward_of(RewardPart(name=name, options=CASES[name]))
    await reward.start()
    try:
        together = await asyncio.gather(*(reward.score(numbered(number)) for number in range(8)))
        alone = [await reward.score(numbered(number)) for number in reversed(range(8))]
    finally:
        await reward.close()
    for one, again in zip(together, reversed(alone), strict=True):
        assert one.rewards.shape == (4,)
        assert one.rewards.tolist() == again.rewards.tolist() == one.parts[name].tolist()
        assert {part.partition(".")[0] for part in one.parts} == {name}
        assert all(values.shape == (4,) and np.isfinite(values).all() for values in one.parts.values())


@pytest.mark.parametrize("name", sorted(JUDGES))
async def test_a_listed_judge_shows_beats_and_goes_on_after_a_group_is_taken_back(name: str) -> None:
    reward = reward_of(RewardPart(name=name, options=CASES[name]))
    await reward.start()
    try:
        assert reward.capacity >= 1
        given_up = asyncio.ensure_future(reward.score(numbered(0)))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        before = reward.beats
        await reward.score(numbered(1))
        assert reward.beats > before
    finally:
        await reward.close()


@pytest.mark.parametrize("name", sorted(JUDGES))
def test_a_listed_judge_refuses_an_option_it_has_not(name: str) -> None:
    with pytest.raises(Misconfigured, match="colour"):
        reward_of(RewardPart(name=name, options={**CASES[name], "colour": "blue"}))


# ---- composition


async def test_a_rule_and_a_judge_are_weighed_together_and_both_stay_visible() -> None:
    reward = reward_of(
        RewardPart(name="exact_match", weight=1.0),
        RewardPart(name="scripted_judge", weight=0.5, options={"votes": 3}),
        RewardPart(name="length", weight=-1.0, options={"target": 2}),
    )
    await reward.start()
    try:
        found = await reward.score(numbered(0, "42", "24", "4"))
    finally:
        await reward.close()
    assert {part: values.tolist() for part, values in found.parts.items()} == {
        "exact_match": [1, 0, 0],
        "length": [1, 1, 0.5],
        "scripted_judge": [1, 0, 0],
        "scripted_judge.votes": [1, 0, 0],
    }
    assert found.rewards.tolist() == [0.5, -1.0, -0.5]


async def test_two_judges_share_a_group_and_the_one_with_fewer_places_says_how_many() -> None:
    reward = reward_of(
        RewardPart(name="scripted_judge", options={"capacity": 7}),
        RewardPart(name="scripted_judge", weight=2.0, options={"capacity": 3}),
    )
    found = await reward.score(numbered(0, "42", "24"))
    assert reward.capacity == 3
    assert found.rewards.tolist() == [3, 0]
    assert {"scripted_judge", "scripted_judge-2"} <= found.parts.keys()


async def test_a_group_whose_rule_fails_is_no_zero_and_its_judge_is_let_go() -> None:
    reward = reward_of(
        RewardPart(name="exact_match"), RewardPart(name="scripted_judge", options={"pace_s": 30, "votes": 1})
    )
    without = group(SourcePrompt(text="40+2=", answer=""), "42")
    await reward.start()
    try:
        with pytest.raises(Exception, match="has no answer to compare with"):
            await asyncio.wait_for(reward.score(without), 20)
        assert not [one for one in asyncio.all_tasks() if "Judge" in repr(one.get_coro())]
    finally:
        await reward.close()


# ---- the scripted judge


def test_a_vote_is_right_as_often_as_stated_and_the_majority_more_often() -> None:
    groups = [numbered(seed, "42", "24") for seed in range(1000)]
    shares: dict[int, float] = {}
    for votes in (1, 5):
        judge = ScriptedJudge(votes=votes, accuracy=0.8)
        found = [judge.shares(one, one.rollouts) > 0.5 for one in groups if one.rollouts]
        shares[votes] = float(np.mean([[right, not wrong] for right, wrong in found]))
    assert shares[1] == pytest.approx(0.8, abs=0.03)
    assert shares[5] == pytest.approx(0.942, abs=0.02)


async def test_half_the_votes_are_no_majority() -> None:
    judge = ScriptedJudge(votes=2, accuracy=0.5)
    found = [await judge.score(numbered(seed)) for seed in range(50)]
    shares = np.concatenate([one.parts["votes"] for one in found])
    assert set(shares.tolist()) == {0.0, 0.5, 1.0}
    assert np.concatenate([one.rewards for one in found]).tolist() == (shares == 1.0).tolist()


async def test_votes_are_cast_one_after_the_other_and_more_of_them_from_a_version_on() -> None:
    judge = ScriptedJudge(votes=2, pace_s=0.02, later={"version": 3, "votes": 6})
    young = numbered(1)
    assert young.rollouts is not None
    spans = young.rollouts.spans.copy()
    spans[:, 3] = 3
    old = replace(young, rollouts=replace(young.rollouts, spans=spans))
    began = time.monotonic()
    await asyncio.gather(judge.score(young), judge.score(young))
    both = time.monotonic()
    await judge.score(old)
    ended = time.monotonic()
    assert both - began >= 2 * 2 * 0.02
    assert ended - both >= 6 * 0.02
    assert 3 <= judge.beats <= 2 + 2 + 6


async def test_a_prompt_without_an_answer_is_an_error_and_never_a_zero() -> None:
    with pytest.raises(ValueError, match="no answer"):
        await ScriptedJudge().score(group(SourcePrompt(text="40+2=", answer=""), "42"))
