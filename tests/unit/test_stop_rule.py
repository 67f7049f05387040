"""The goal of a run: one strict sentence."""

from __future__ import annotations

import pytest

from broker.errors import Misconfigured
from broker.stop_rule import parse


def test_a_goal_is_reached_at_its_bound() -> None:
    rule = parse("eval.accuracy >= 0.95")
    assert rule is not None
    assert rule.satisfied(0.95, {})
    assert not rule.satisfied(0.949, {})


def test_a_goal_may_name_a_task_and_waits_until_it_is_measured() -> None:
    rule = parse(" eval.accuracy.gcd>5e-1 ")
    assert rule is not None
    assert rule.satisfied(0.0, {"gcd": 0.6})
    assert not rule.satisfied(1.0, {"gcd": 0.5})
    assert not rule.satisfied(1.0, {"lcm": 0.9})


def test_no_text_is_no_rule() -> None:
    assert parse("  ") is None


@pytest.mark.parametrize(
    "text",
    [
        "accuracy >= 0.9",
        "eval.accuracy => 0.9",
        "eval.accuracy >= 0.9 and x",
        "eval.accuracy >= 95",
        "eval.accuracy",
        "__import__('os')",
    ],
)
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(Misconfigured, match="stop_when"):
        parse(text)
