"""The clipped policy-gradient loss shared by the group-relative algorithms.

For: PPO's clip (Schulman et al. 2017, arXiv 1707.06347) with off-policy weights outside the clip, as in decoupled PPO
(Hilton et al. 2021, arXiv 2110.00641): Σ w · −min(r·A, clip(r, 1−ε, 1+ε)·A), r = policy/proximal, w = proximal/behaviour; and
the k3 estimate of KL to the reference, e^d − d − 1 with d = reference − policy (Schulman 2020). Not for: advantages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumers.algorithms.base import Loss, LossBatch

if TYPE_CHECKING:
    from torch import Tensor


def clipped_loss(policy_logprobs: Tensor, batch: LossBatch, *, clip: float, kl_coef: float, denominator: float) -> Loss:
    """Sum over actions divided by `denominator`; metrics are sums over actions."""
    proximal = policy_logprobs.detach() if batch.proximal_logprobs is None else batch.proximal_logprobs
    ratio = (policy_logprobs - proximal).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = (ratio * batch.advantages).minimum(clipped * batch.advantages)
    loss = -(gain * batch.weights).sum() / denominator
    metrics = {"clipped": float(((ratio != clipped) * batch.mask).sum())}
    if batch.reference_logprobs is not None:
        distance = batch.reference_logprobs - policy_logprobs
        penalty = (distance.exp() - distance - 1) * batch.mask
        loss = loss + kl_coef * penalty.sum() / denominator
        metrics["kl"] = float(penalty.detach().sum())
    return Loss(value=loss, metrics=metrics)
