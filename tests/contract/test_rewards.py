"""What every listed rule keeps, in the process it runs in; a listed rule without a case here fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from broker.codec import decode_group_bytes, encode_group
from broker.messages import Group, Prompt, Rollouts
from consumers.rewards import REWARDS, create
from consumers.rewards.reasoning_gym import ReasoningGym
from consumers.settings import RewardPart, RewardSection
from producers.prompt_sources import create_source
from producers.prompt_sources.base import SourcePrompt


def own_prompt(**options: Any) -> SourcePrompt:
    return create_source({"source": "reasoning_gym", "size": 20, **options}, 0, 0).prompt(0, 0)


def case_of_reasoning_gym() -> tuple[dict[str, Any], SourcePrompt, list[str], list[float]]:
    prompt = own_prompt(task="chain_sum")
    return {"tag": "answer"}, prompt, [f"so <answer> {prompt.answer} </answer>.", "<answer>x</answer>"], [1.0, 0.0]


CASES: dict[str, Callable[[], tuple[dict[str, Any], SourcePrompt, list[str], list[float]]]] = {
    "exact_match": lambda: ({}, SourcePrompt(text="40+2=", answer="42"), ["42", "24"], [1, 0]),
    "format": lambda: ({"pattern": r"\d+"}, SourcePrompt(text="40+2="), ["42", "forty-two"], [1, 0]),
    "length": lambda: ({"target": 2}, SourcePrompt(text="40+2="), ["42", ""], [1, 0]),
    "lexicon_sentiment": lambda: (
        {},
        SourcePrompt(text="Today I saw a cat and it was"),
        [" wonderful, I love it!", " awful, I hate it."],
        [0.8478, -0.7717],
    ),
    "reasoning_gym": case_of_reasoning_gym,
    "scripted": lambda: ({}, SourcePrompt(text="40+2="), ["42", "24"], [1, 0]),
}
"""Options, a prompt, two completions, and their rewards."""


def group(prompt: SourcePrompt, *completions: str) -> Group:
    """As it comes out of the broker."""
    size = len(completions)
    rollouts = Rollouts(
        texts=completions,
        actions=np.zeros(size, np.int32),
        offsets=np.arange(size + 1, dtype=np.int32),
        logprobs=np.zeros(size, np.float32),
        mask=np.ones(size, np.uint8),
        spans=np.array([(sibling, 0, 1, 0) for sibling in range(size)], np.int32),
        finishes=("stop",) * size,
    )
    asked = Prompt(
        text=prompt.text,
        actions=np.zeros(1, np.int32),
        size=size,
        seed=0,
        answer=prompt.answer,
        meta=prompt.meta,
    )
    whole = Group(id="x/0/0", kind="train", prompt=asked, rollouts=rollouts)
    return decode_group_bytes(encode_group(whole))


@pytest.mark.parametrize("name", sorted(REWARDS))
async def test_a_listed_rule_scores_in_its_process(name: str) -> None:
    options, prompt, completions, expected = CASES[name]()
    reward = create(RewardSection(parts=[RewardPart(name=name, options=options)], timeout_s=30))
    try:
        once = await reward.score(group(prompt, *completions))
        again = await reward.score(group(prompt, *reversed(completions)))
    finally:
        await reward.close()
    if name == "scripted":
        assert set(once.rewards.tolist()) <= {0.0, 1.0}
    else:
        assert once.rewards.tolist() == pytest.approx(expected, abs=1e-4)
    assert again.rewards.tolist() == once.rewards.tolist()[::-1], "a rollout's reward does not depend on its siblings"
    assert once.parts[name].tolist() == once.rewards.tolist()


# ---- reasoning-gym


def tasks() -> list[str]:
    """One of each family, and those whose entries or scorers are unlike the others."""
    families = [
        "chain_sum",
        "gcd",
        "letter_counting",
        "spell_backward",
        "syllogism",
        "base_conversion",
        "family_relationships",
    ]
    return [*families, "arc_agi", "rearc", "knights_knaves", "prime_factorization", "isomorphic_strings", "n_queens"]


@pytest.fixture(scope="module")
def rule() -> ReasoningGym:
    return ReasoningGym()


@pytest.mark.parametrize("task", tasks())
def test_a_task_s_own_answer_earns_everything_after_its_travel(task: str, rule: ReasoningGym) -> None:
    travelled = group(own_prompt(task=task), "x").prompt

    def earned(completion: str) -> float:
        return rule(prompt=travelled.text, completion=completion, answer=travelled.answer, meta=travelled.meta)

    assert earned(f" {travelled.answer}\n") == 1.0
    assert earned("no") < 0.2
    assert earned("") < 0.2


def test_a_scorer_sees_the_options_its_task_was_made_with(rule: ReasoningGym) -> None:
    prompt = own_prompt(task="decimal_arithmetic", min_num_decimal_places=1, max_num_decimal_places=2)
    assert rule(prompt=prompt.text, completion=prompt.answer, answer=prompt.answer, meta=prompt.meta) == 1.0
    assert rule.task("decimal_arithmetic", repr(prompt.meta["options"])).config.max_num_decimal_places == 2


def test_a_scorer_that_fails_on_its_own_answer_is_an_error_and_never_a_zero(rule: ReasoningGym) -> None:
    prompt = own_prompt(task="gcd")
    broken = {**prompt.meta, "entry": prompt.meta["entry"].replace("'answer'", "'lost'")}
    with pytest.raises(KeyError, match="answer"):
        rule(prompt=prompt.text, completion=prompt.answer, answer=prompt.answer, meta=broken)


def test_a_prompt_of_another_source_is_told(rule: ReasoningGym) -> None:
    with pytest.raises(ValueError, match="carries no reasoning-gym entry"):
        rule(prompt="p", completion="x", answer="", meta={})


@pytest.mark.parametrize(
    ("completion", "found"),
    [
        ("<answer>1</answer>", "1"),
        ("<answer>1</answer> no, <answer> 2 </answer> yes", "2"),
        ("plain", "plain"),
        ("<answer>unclosed", "unclosed"),
    ],
)
def test_the_last_answer_between_tags_counts(completion: str, found: str) -> None:
    assert ReasoningGym(tag="answer").answer_in(completion) == found
