"""What a group knows about itself at each stage."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from broker.messages import Group, Prompt, Rollouts, Scores


def group() -> Group:
    prompt = Prompt(text="1+1=", actions=np.array([5, 6], np.int32), size=2, seed=3)
    return Group(id="addition/0/1", kind="train", prompt=prompt)


def rollouts() -> Rollouts:
    return Rollouts(
        texts=("2", "11"),
        actions=np.array([7, 1, 8, 8, 1], np.int32),
        offsets=np.array([0, 2, 5], np.int32),
        logprobs=np.array([-0.1, -0.2, -0.3, -0.4, -0.5], np.float32),
        mask=np.ones(5, np.uint8),
        spans=np.array([(0, 0, 2, 4), (1, 0, 1, 3), (1, 1, 3, 5)], np.int32),
        finishes=("stop", "length"),
    )


def test_a_group_grows_by_one_part_at_each_stage_and_the_earlier_one_stays_as_it_was() -> None:
    asked = group()
    answered = asked.with_rollouts(rollouts())
    scored = answered.with_scores(Scores(rewards=np.array([1, 0], np.float32)))
    assert (asked.rollouts, answered.scores) == (None, None)
    assert scored.rollouts is answered.rollouts
    assert scored.prompt is asked.prompt


def test_tokens_and_reward_are_known_once_there_are_any() -> None:
    asked = group()
    answered = asked.with_rollouts(rollouts())
    scored = answered.with_scores(Scores(rewards=np.array([1, 0], np.float32)))
    assert (asked.tokens, answered.tokens) == (0, 5)
    assert (answered.reward, scored.reward) == (None, 0.5)


def test_a_group_is_as_old_as_the_oldest_version_that_touched_any_sibling() -> None:
    assert (rollouts().oldest_version, rollouts().newest_version) == (3, 5)


def test_each_sibling_has_its_stretch_of_the_flat_actions() -> None:
    flat = rollouts()
    assert flat.actions[flat.sibling(0)].tolist() == [7, 1]
    assert flat.actions[flat.sibling(1)].tolist() == [8, 8, 1]


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        group().id = "another"  # pyright: ignore[reportAttributeAccessIssue]
