"""The clipped surrogate every ratio-based algorithm maximizes, and the penalty that keeps a policy near its reference.

For: losses, pure given tensors. Not for: advantages (`credit`) or off-policy weights (`correction`).

    r_t = π/π_p                    π the policy, π_p the proximal policy: the policy as it was when the batch began
    J_t = w_t · min(r_t·A, clip(r_t, low, high)·A)      w_t the off-policy weight, outside the clip
    k_t = e^d − d − 1, d = log π_ref − log π            an estimate of KL(π‖π_ref) that is never negative

With `correction.token = "clip"`, the default, π_p is the behaviour policy. Else, when each batch takes one optimizer
step, π_p is π itself: r is 1, its gradient is that of log π, and nothing is clipped.

Sources: Schulman et al. 2017, arXiv 1707.06347 (clip); Hilton et al. 2021, arXiv 2110.00641 (w outside the clip);
Schulman 2020, "Approximating KL divergence" (k3); Zheng et al. 2025, arXiv 2507.18071 (ratios of whole rollouts, token
form).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from consumers.algorithms.base import Loss, LossBatch

if TYPE_CHECKING:
    from torch import Tensor


def action_ratio(policy_logprobs: Tensor, batch: LossBatch) -> Tensor:
    """(N,) r_t of each action on its own."""
    return log_ratio(policy_logprobs, batch).exp()


def rollout_ratio(policy_logprobs: Tensor, batch: LossBatch, *, mean: bool) -> Tensor:
    """(N,) the ratio of an action's whole rollout: Π r_t, or its geometric mean.

    The value is the rollout's, the gradient each action's own: sg(s)·r_t/sg(r_t).
    """
    logs = log_ratio(policy_logprobs, batch)
    own = logs.detach() * batch.mask
    total = own.new_zeros(batch.rollouts).index_add_(0, batch.rollout, own)
    if mean:
        total = total / own.new_zeros(batch.rollouts).index_add_(0, batch.rollout, batch.mask).clamp(min=1)
    return (total.index_select(0, batch.rollout) + logs - logs.detach()).exp()


def log_ratio(policy_logprobs: Tensor, batch: LossBatch) -> Tensor:
    proximal = policy_logprobs.detach() if batch.proximal_logprobs is None else batch.proximal_logprobs
    return policy_logprobs - proximal


def clipped_loss(ratio: Tensor, batch: LossBatch, *, low: float, high: float, denominator: float) -> Loss:
    """−Σ J_t / denominator; `clipped` counts the actions whose gradient the clip removed."""
    plain, held = ratio * batch.advantages, ratio.clamp(low, high) * batch.advantages
    value = -(plain.minimum(held) * batch.weights).sum() / denominator
    return Loss(value=value, metrics={"clipped": float(((held < plain) * batch.mask).sum())})


def penalized(loss: Loss, policy_logprobs: Tensor, batch: LossBatch, *, coef: float, denominator: float) -> Loss:
    """loss + coef · Σ k_t / denominator, when there is a reference."""
    if batch.reference_logprobs is None:
        return loss
    distance = batch.reference_logprobs - policy_logprobs
    divergence = ((distance.exp() - distance - 1) * batch.mask).sum()
    return Loss(
        value=loss.value + coef * divergence / denominator, metrics={**loss.metrics, "kl": float(divergence.detach())}
    )


def by_length(batch: LossBatch) -> LossBatch:
    """The same batch with each action's weight divided by its rollout's length, so that rollouts count the same."""
    lengths = batch.mask.new_zeros(batch.rollouts).index_add_(0, batch.rollout, batch.mask).clamp(min=1)
    return replace(batch, weights=batch.weights / lengths.index_select(0, batch.rollout))
