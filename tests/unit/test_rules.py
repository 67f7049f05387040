"""What the shipped rules answer, how a rule is made from a name and options, and which answers are no rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.errors import Misconfigured
from consumers.rewards import create, distinct, path_of
from consumers.rewards.exact_match import exact_match
from consumers.rewards.format import Format
from consumers.rewards.length import Length
from consumers.rewards.rule_worker import Part, Question, Scoring, load, score
from consumers.rewards.weighted import Weighted
from consumers.settings import RewardPart, RewardSection


def ask(rule: Any, completion: str, answer: str = "42") -> float:
    return rule(prompt="40+2=", completion=completion, answer=answer, meta={})


def test_an_exact_match_is_blind_to_white_space_around_it_only() -> None:
    assert [ask(exact_match, text) for text in ("42", " 42\n", "4 2", "42.", "")] == [1, 1, 0, 0, 0]


def test_an_exact_match_with_no_answer_is_an_error_and_never_a_zero() -> None:
    with pytest.raises(ValueError, match="the prompt '40\\+2=' has no answer"):
        ask(exact_match, "42", answer="")


def test_a_format_must_match_the_whole_completion() -> None:
    rule = Format(pattern=r"<think>.*</think>\d+")
    assert ask(rule, "<think>two\nlines</think>42") == 1
    assert ask(rule, "well: <think></think>42") == 0


def test_a_length_is_best_at_its_target() -> None:
    assert [ask(Length(target=4), "x" * count) for count in (0, 2, 4, 6, 8, 100)] == [0, 0.5, 1, 0.5, 0, 0]


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("consumers.rewards.exact_match:exact", {}, "has no attribute 'exact'"),
        ("consumers.rewards.nothing:rule", {}, "No module named"),
        ("consumers.rewards.exact_match:exact_match", {"strip": True}, "unexpected keyword argument 'strip'"),
        ("consumers.rewards.format:Format", {}, "missing 1 required keyword-only argument: 'pattern'"),
        ("consumers.rewards.format:Format", {"pattern": "("}, "unterminated subpattern"),
        ("consumers.rewards.length:Length", {"target": 0}, "target = 0"),
        (f"{__name__}:narrow", {}, "an unexpected keyword argument 'prompt'"),
        ("math:pi", {}, "not a callable object"),
    ],
)
def test_a_rule_that_cannot_be_made_says_why(path: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        load(Part("name", path, options))


def narrow(completion: str) -> float:
    return float(len(completion))


def generous(*, prompt: str, completion: str, answer: str, meta: object, plus: float = 0.0) -> float:
    return plus + float(prompt == "40+2=") + float(answer == completion)


def scores(*rules: Any) -> Any:
    begun: list[int] = []
    parts: list[Scoring] = [(rule.__name__, rule) for rule in rules]
    found = score(Question("40+2=", "42", {"level": 1}, ["42", "43"]), parts, begun.append)
    assert begun == list(range(len(begun)))
    return found


def test_a_function_gets_the_part_s_options_with_every_completion() -> None:
    _, rule = load(Part("generous", f"{__name__}:generous", {"plus": 0.5}))
    assert score(Question("40+2=", "42", {}, ["42", "43"]), [("generous", rule)], lambda _: None) == [[2.5, 1.5]]


@pytest.mark.parametrize("value", [True, 3, np.float32(0.5), np.int64(2), -1e30])
def test_whatever_stands_for_a_number_is_a_reward(value: Any) -> None:
    def rule(**_: Any) -> Any:
        return value

    assert scores(rule) == [[float(value)] * 2]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "ValueError: a reward must be a finite float32, not nan (for completion '42')"),
        (float("-inf"), "finite float32, not -inf"),
        (1e39, "finite float32, not 1e+39"),
        (None, "TypeError: a reward must be a number, not None"),
        ("0.5", "must be a number, not '0.5'"),
        ([0.5], "must be a number, not [0.5]"),
        (1j, "must be a number, not 1j"),
    ],
)
def test_whatever_else_a_rule_answers_is_refused_by_name(value: Any, problem: str) -> None:
    def rule(**_: Any) -> Any:
        return value

    assert problem in scores(generous, rule)
    assert scores(generous, rule).startswith("rule rule: ")


def test_an_exception_tells_the_rule_its_text_and_the_line() -> None:
    def fails(**_: Any) -> Any:
        raise ZeroDivisionError("division of the prompt by zero")

    told = scores(generous, fails)
    assert told.startswith("rule fails: ZeroDivisionError: division of the prompt by zero (")
    assert f"{Path(__file__).name}:" in told


def test_a_rule_that_leaves_the_process_costs_its_group_only() -> None:
    def leaves(**_: Any) -> Any:
        raise SystemExit(3)

    assert scores(leaves).startswith("rule leaves: SystemExit: 3")


# ---- parts together


def test_parts_are_named_as_metrics_show_them() -> None:
    assert distinct(["format", "my.rules:polite", "format", "other:polite", "format"]) == [
        *("format", "polite", "format-2", "polite-2", "format-3"),
    ]


@pytest.mark.parametrize(
    ("name", "hint"), [("exactmatch", 'did you mean "exact_match"'), ("my.rules", "module:function")]
)
def test_a_rule_that_is_neither_listed_nor_a_path_is_told_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(Misconfigured, match=hint):
        create(RewardSection(parts=[RewardPart(name=name)]))


def test_a_dotted_path_is_taken_as_it_is() -> None:
    assert path_of("my.rules:polite") == "my.rules:polite"
    assert path_of("exact_match") == "consumers.rewards.exact_match:exact_match"


class Fixed:
    """A scorer that has the parts already."""

    capacity, beats = 4, 0

    def __init__(self, **parts: list[float]) -> None:
        self.parts = {name: np.array(values, np.float32) for name, values in parts.items()}

    async def start(self) -> None:
        """Ready."""

    async def score(self, group: Any) -> Any:
        return self.parts

    async def close(self) -> None:
        """Nothing is held."""


async def test_the_reward_is_the_weighted_sum_and_the_parts_stay_as_they_were() -> None:
    found = await Weighted([Fixed(right=[1, 0], polite=[0.5, 1])], {"right": 1.0, "polite": -0.5}, 9).score(None)  # type: ignore[arg-type]
    assert found.rewards.tolist() == [0.75, -0.5]
    assert found.rewards.dtype == np.float32
    assert {name: values.tolist() for name, values in found.parts.items()} == {"right": [1, 0], "polite": [0.5, 1]}
