"""Weights for actions that an older policy sampled: w = proximal/behaviour, tamed so that no action leads the batch.

For: off-policy correction, pure given tensors. Not for: the loss (`algorithms`). With C a cap:

    token       clip       1: the behaviour policy takes the proximal one's place in the algorithm, whose ratio is then
                           w itself and whose clip is a trust region around what sampled; min(1, C/w) above C
                tis        min(w, C): truncated importance sampling, little variance, some bias
                mis        w inside [1/C, C], else the action is dropped, also from the denominator
                icepop     w inside [1/C, C], else 0; the denominator stays
    sequence    geometric  a rollout whose exp(mean log w) is outside [1/C, C] gets weight 0 as a whole

The geometric mean does not depend on a rollout's length, as the product would. Log-ratios are held within ±20 before
exp.

Sources: Schulman et al. 2017, arXiv 1707.06347 (clip); Ye et al. 2020, arXiv 1912.09729 (its bound for negative
advantages); Hilton et al. 2021, arXiv 2110.00641 (proximal apart from behaviour policy); Ionides 2008, "Truncated
importance sampling", and Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"
(tis); Liu, Li et al. 2025, "When speed kills stability" (mis, geometric); Ling team 2025, arXiv 2510.18855 (icepop).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consumers.settings import Correction

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_GAP = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    weights: Tensor
    """(N,) 0 where the action has no say."""
    mask: Tensor
    """(N,) 1 for actions the denominator counts."""
    metrics: Mapping[str, float]
    """Sums over the policy's own actions: `actions`, `mismatch_k3` (k3 estimate of KL(behaviour‖proximal)), `ratio`,
    `masked`, `weight`, `weight_squared`; and `ratio_max`."""


def correct(
    proximal: Tensor, behaviour: Tensor, mask: Tensor, rollout: Tensor, rollouts: int, settings: Correction
) -> Corrected:
    """(N,) log-probs of the policy that trains and of the one that sampled, (N,) mask, (N,) each action's rollout."""
    gap = (proximal - behaviour).clamp(-LARGEST_GAP, LARGEST_GAP)
    ratio = gap.exp()
    weights = token_weights(ratio, settings) * mask
    counted = mask * (weights > 0) if settings.token == "mis" else mask
    if settings.sequence == "geometric":
        weights = weights * kept_rollouts(gap, mask, rollout, rollouts, settings.sequence_cap).index_select(0, rollout)
    applied = weights * ratio if settings.token == "clip" else weights
    metrics = {
        "actions": float(mask.sum()),
        "mismatch_k3": float(((ratio - 1 - gap) * mask).sum()),
        "ratio": float((ratio * mask).sum()),
        "masked": float(((weights == 0) * mask).sum()),
        "weight": float(applied.sum()),
        "weight_squared": float(applied.square().sum()),
        "ratio_max": float((ratio * mask).max()) if len(ratio) else 0.0,
    }
    return Corrected(weights=weights, mask=counted, metrics=metrics)


def token_weights(ratio: Tensor, settings: Correction) -> Tensor:
    """(N,) w → (N,) tamed w."""
    cap = settings.token_cap
    if settings.token == "clip":
        return (cap / ratio).clamp(max=1)
    if settings.token == "tis":
        return ratio.clamp(max=cap)
    if settings.token in ("mis", "icepop"):
        return ratio * ((ratio >= 1 / cap) & (ratio <= cap))
    return ratio.new_ones(ratio.shape)


def kept_rollouts(gap: Tensor, mask: Tensor, rollout: Tensor, rollouts: int, cap: float) -> Tensor:
    """(R,) 1 where the geometric mean of w over the rollout's own actions lies inside [1/cap, cap]."""
    total = gap.new_zeros(rollouts).index_add_(0, rollout, gap * mask)
    count = gap.new_zeros(rollouts).index_add_(0, rollout, mask).clamp(min=1)
    mean = (total / count).exp()
    return ((mean >= 1 / cap) & (mean <= cap)).to(gap.dtype)
