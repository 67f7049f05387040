"""Each algorithm's credit and loss, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from broker.errors import Misconfigured
from consumers.algorithms import create
from consumers.algorithms.base import LossBatch
from consumers.settings import AlgorithmSection

REWARDS = np.array([1, 0, 0, 1, 1, 1], np.float32)


def algorithm(name: str, **settings: Any) -> Any:
    return create(AlgorithmSection(name=name, **settings))


def batch(advantages: list[float], rollout: list[int], **fields: Any) -> LossBatch:
    number = len(rollout)
    given: dict[str, Any] = {
        "behaviour_logprobs": torch.full((number,), -1.0),
        "proximal_logprobs": None,
        "reference_logprobs": None,
        "advantages": torch.tensor(advantages),
        "weights": torch.ones(number),
        "mask": torch.ones(number),
        "rollout": torch.tensor(rollout),
        "rollouts": max(rollout) + 1,
        "total_actions": float(number),
        "total_rollouts": float(max(rollout) + 1),
    }
    return LossBatch(**(given | fields))


def gradient(chosen: Any, given: LossBatch, logprobs: list[float]) -> list[float]:
    policy = torch.tensor(logprobs, requires_grad=True)
    chosen.loss(policy, given).value.backward()
    assert policy.grad is not None
    return policy.grad.tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", (1 - 2 / 3) / (np.std(REWARDS, ddof=1) + 1e-4)),
        ("dr_grpo", 1 - 2 / 3),
        ("rloo", 1 - 3 / 5),
        ("reinforce", 1.0),
    ],
)
def test_the_first_rollouts_advantage_is_its_formulas(name: str, expected: float) -> None:
    assert algorithm(name).advantages(REWARDS)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", {}, [-2 / 3, -2 / 3, 1 / 3]),  # A / 3 actions
        ("dapo", {}, [-2 / 3, -2 / 3, 1 / 3]),
        ("cispo", {}, [-2 / 3, -2 / 3, 1 / 3]),
        ("reinforce", {}, [-2 / 3, -2 / 3, 1 / 3]),
        ("dr_grpo", {"length": 4}, [-2 / 8, -2 / 8, 1 / 8]),  # A / (2 rollouts · 4)
        ("rloo", {}, [-2 / 2, -2 / 2, 1 / 2]),  # A / 2 rollouts
        ("gspo", {}, [-2 / 4, -2 / 4, 1 / 2]),  # A / (2 rollouts · the rollout's length)
    ],
)
def test_without_drift_the_gradient_is_the_advantage_over_the_denominator(
    name: str, options: dict[str, Any], expected: list[float]
) -> None:
    chosen = algorithm(name, options=options)
    found = gradient(chosen, batch([2.0, 2.0, -1.0], [0, 0, 1]), [-1.0, -0.5, -2.0])
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_clip_stops_an_action_that_has_moved_far_enough_and_only_in_that_direction() -> None:
    far = batch([1.0, -1.0], [0, 1], proximal_logprobs=torch.tensor([-1.0, -1.0]))
    assert gradient(algorithm("grpo"), far, [-0.5, -0.5])[0] == 0
    assert gradient(algorithm("grpo"), far, [-0.5, -0.5])[1] > 0
    assert gradient(algorithm("grpo"), far, [-1.5, -1.5])[1] == 0


def test_dapo_leaves_more_room_upwards() -> None:
    risen = batch([1.0], [0], proximal_logprobs=torch.tensor([-1.0]))
    logprobs = [-1.0 + float(np.log(1.25))]
    assert gradient(algorithm("grpo"), risen, logprobs) == [0]
    assert gradient(algorithm("dapo"), risen, logprobs)[0] < 0


def test_cispo_caps_the_weight_and_keeps_the_gradient() -> None:
    risen = batch([1.0], [0], proximal_logprobs=torch.tensor([-5.0]))
    assert gradient(algorithm("cispo", options={"clip_high": 1.0}), risen, [-1.0]) == pytest.approx([-2.0])


def test_rloo_clips_a_rollout_by_the_product_of_its_ratios_and_gspo_by_their_mean() -> None:
    drifted = batch([1.0, 1.0], [0, 0], proximal_logprobs=torch.tensor([-1.0, -1.0]))
    logprobs = [-1.0 + float(np.log(1.15))] * 2  # each below 1.2, together above
    assert gradient(algorithm("rloo"), drifted, logprobs) == [0, 0]
    assert gradient(algorithm("gspo"), drifted, logprobs)[0] < 0
    assert gradient(algorithm("grpo"), drifted, logprobs)[0] < 0


def test_the_penalty_is_k3_and_pulls_towards_the_reference() -> None:
    chosen = algorithm("grpo", kl_coef=0.5)
    away = batch([0.0], [0], reference_logprobs=torch.tensor([-1.0]))
    assert chosen.needs_reference
    assert float(chosen.loss(torch.tensor([-2.0]), away).value) == pytest.approx(0.5 * (np.e - 1 - 1))
    assert gradient(chosen, away, [-2.0])[0] < 0
    assert gradient(chosen, away, [-0.5])[0] > 0


def test_a_misspelt_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Misconfigured, match='did you mean "clip_high"'):
        algorithm("dapo", options={"clip_hihg": 0.3})


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Misconfigured, match="known: cispo, dapo"):
        algorithm("grop")


def test_a_dotted_path_names_an_algorithm_from_elsewhere() -> None:
    assert type(algorithm("consumers.algorithms.rloo:make")) is type(algorithm("rloo"))
