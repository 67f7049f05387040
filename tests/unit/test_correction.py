"""Off-policy weights follow their formulas, action by action and rollout by rollout."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from consumers.correction import correct
from consumers.settings import Correction

RATIOS = [1.0, 1.9, 2.5, 0.6, 0.4, 1.0]
"""w of six actions: a rollout of four and one of two."""


def corrected(mask: list[float] | None = None, ratios: list[float] = RATIOS, **settings: Any) -> Any:
    behaviour = torch.full((len(ratios),), -2.0)
    return correct(
        behaviour + torch.tensor(ratios).log(),
        behaviour,
        torch.tensor(mask or [1.0] * len(ratios)),
        torch.tensor([0, 0, 0, 0, 1, 1][: len(ratios)]),
        2,
        Correction(**settings),
    )


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("none", [1, 1, 1, 1, 1, 1]),
        ("clip", [1, 1, 2 / 2.5, 1, 1, 1]),
        ("tis", [1, 1.9, 2, 0.6, 0.4, 1]),
        ("mis", [1, 1.9, 0, 0.6, 0, 1]),
        ("icepop", [1, 1.9, 0, 0.6, 0, 1]),
    ],
)
def test_each_rule_gives_an_action_its_weight(token: str, expected: list[float]) -> None:
    assert corrected(token=token, sequence="none").weights.tolist() == pytest.approx(expected, abs=1e-5)


def test_mis_takes_dropped_actions_out_of_the_denominator_and_icepop_does_not() -> None:
    assert corrected(token="mis", sequence="none").mask.tolist() == [1, 1, 0, 1, 0, 1]
    assert corrected(token="icepop", sequence="none").mask.tolist() == [1] * 6


def test_the_geometric_filter_silences_a_rollout_that_drifted_as_a_whole() -> None:
    weights = corrected(ratios=[3, 3, 2.1, 1.9, 0.4, 1.0], token="none", sequence="geometric").weights
    assert weights.tolist() == [0, 0, 0, 0, 1, 1]


def test_the_geometric_filter_does_not_depend_on_length() -> None:
    short, long = (
        correct(
            torch.full((n,), -1.9),
            torch.full((n,), -2.0),
            torch.ones(n),
            torch.zeros(n, dtype=torch.long),
            1,
            Correction(),
        )
        for n in (2, 1000)
    )
    assert bool((short.weights > 0).all())
    assert bool((long.weights > 0).all())  # the product would be e^100


def test_actions_the_policy_did_not_choose_get_no_weight_and_do_not_sway_their_rollout() -> None:
    result = corrected(
        mask=[1.0, 1.0, 0.0, 1.0, 1.0, 1.0], ratios=[1.0, 1.0, 1e6, 1.0, 1.0, 1.0], token="tis", sequence="geometric"
    )
    assert result.weights.tolist() == [1, 1, 0, 1, 1, 1]
    assert result.metrics["ratio_max"] == pytest.approx(1.0)


def test_fresh_actions_are_left_as_they_are() -> None:
    result = corrected(ratios=[1.0] * 6)
    assert result.weights.tolist() == [1] * 6
    assert result.metrics["mismatch_k3"] == 0


def test_a_ratio_too_large_for_a_float_stays_finite() -> None:
    result = correct(
        torch.tensor([0.0]),
        torch.tensor([-1e4]),
        torch.ones(1),
        torch.zeros(1, dtype=torch.long),
        1,
        Correction(sequence="none"),
    )
    assert math.isfinite(float(result.weights)) and math.isfinite(result.metrics["ratio_max"])
