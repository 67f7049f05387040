"""What every registered algorithm keeps, whatever its formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from consumers.algorithms import ALGORITHMS, create
from consumers.algorithms.base import LossBatch
from consumers.settings import AlgorithmSection


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Any:
    return create(AlgorithmSection(name=request.param))


def micro_batch(seed: int, rollouts: int = 6) -> tuple[Tensor, LossBatch]:
    """Policy log-probs and a batch around them, a little off-policy."""
    generator = torch.Generator().manual_seed(seed)
    rollout = torch.arange(rollouts).repeat_interleave(torch.arange(1, rollouts + 1))
    number = len(rollout)
    policy = -torch.rand(number, generator=generator) - 0.1
    mask = (torch.rand(number, generator=generator) > 0.2).float()
    batch = LossBatch(
        behaviour_logprobs=policy - 0.1,
        proximal_logprobs=policy + 0.05 * torch.randn(number, generator=generator),
        reference_logprobs=None,
        advantages=torch.randn(rollouts, generator=generator)[rollout],
        weights=mask * torch.rand(number, generator=generator),
        mask=mask,
        rollout=rollout,
        rollouts=rollouts,
        total_actions=float(mask.sum()),
        total_rollouts=float(rollouts),
    )
    return policy, batch


def loss_and_gradient(algorithm: Any, policy: Tensor, batch: LossBatch) -> tuple[float, Tensor]:
    policy = policy.clone().requires_grad_()
    loss = algorithm.loss(policy, batch).value
    loss.backward()
    assert policy.grad is not None
    return float(loss.detach()), policy.grad


def test_siblings_without_difference_have_no_signal_and_exactly_no_advantage(algorithm: Any) -> None:
    rewards = np.zeros(8, np.float32)
    assert not algorithm.has_signal(rewards)
    assert not algorithm.advantages(rewards).any()


def test_advantages_are_one_float_per_sibling_and_order_them_as_the_rewards_do(algorithm: Any) -> None:
    rewards = np.array([0.5, 0, 1, 0.25], np.float32)
    advantages = algorithm.advantages(rewards)
    assert algorithm.has_signal(rewards)
    assert advantages.dtype == np.float32
    assert advantages.shape == rewards.shape
    assert np.array_equal(np.argsort(advantages), np.argsort(rewards))


def test_a_single_sibling_is_judged_without_dividing_by_zero(algorithm: Any) -> None:
    assert np.isfinite(algorithm.advantages(np.ones(1, np.float32))).all()


def test_actions_without_weight_get_no_gradient(algorithm: Any) -> None:
    policy, batch = micro_batch(1)
    _, gradient = loss_and_gradient(algorithm, policy, replace(batch, weights=torch.zeros_like(policy)))
    assert not gradient.any()


def test_masked_actions_get_no_gradient_and_sway_no_other(algorithm: Any) -> None:
    policy, batch = micro_batch(2)
    _, gradient = loss_and_gradient(algorithm, policy, batch)
    moved = policy + (1 - batch.mask) * 0.3
    _, after = loss_and_gradient(algorithm, moved, batch)
    assert not gradient[batch.mask == 0].any()
    assert torch.allclose(gradient, after)


def test_without_drift_good_actions_become_likelier_and_bad_ones_less(algorithm: Any) -> None:
    policy, batch = micro_batch(3)
    _, gradient = loss_and_gradient(algorithm, policy, replace(batch, proximal_logprobs=None))
    counted = batch.weights > 0
    assert bool((torch.sign(gradient) == -torch.sign(batch.advantages))[counted].all())


def test_a_batch_cut_into_micro_batches_has_the_same_loss_and_gradient(algorithm: Any) -> None:
    policy, batch = micro_batch(4)
    whole, gradient = loss_and_gradient(algorithm, policy, batch)
    losses, gradients = 0.0, []
    for part in (batch.rollout < 3, batch.rollout >= 3):
        cut = {
            name: getattr(batch, name)[part]
            for name in ("behaviour_logprobs", "proximal_logprobs", "advantages", "weights", "mask")
        }
        first = int(batch.rollout[part].min())
        piece = replace(batch, **cut, rollout=batch.rollout[part] - first, rollouts=3)
        loss, own = loss_and_gradient(algorithm, policy[part], piece)
        losses += loss
        gradients.append(own)
    assert losses == pytest.approx(whole, abs=1e-6)
    assert torch.allclose(torch.cat(gradients), gradient, atol=1e-7)


def test_the_same_batch_gives_the_same_bits(algorithm: Any) -> None:
    policy, batch = micro_batch(5)
    first, second = (loss_and_gradient(algorithm, policy, batch) for _ in range(2))
    assert first[0] == second[0]
    assert torch.equal(first[1], second[1])
