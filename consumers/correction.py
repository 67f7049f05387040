"""Weights for actions that an older policy sampled: w = proximal / behaviour, tamed.

For: per-action weights, pure. Not for: the loss (`algorithms`). Rules, C the cap:
    tis         min(w, C)                                  truncated importance sampling
    mis         w inside [1/C, C], else 0 and out of the mask
    icepop      w inside [1/C, C], else 0, still in the denominator
    geometric   a rollout whose exp(mean log w) is outside [1/C, C] is masked whole; independent of its length
Log-ratios are clamped at ±20 before exp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumers.settings import Correction

if TYPE_CHECKING:
    from torch import Tensor


def corrected(
    proximal: Tensor, behaviour: Tensor, mask: Tensor, rollout: Tensor, rollouts: int, settings: Correction
) -> tuple[Tensor, dict[str, float]]:
    """(N,) log-probs → (N,) weights (mask included), and sums: `masked`, `mismatch_k3`, `ratio_max`."""
    gap = (proximal - behaviour).clamp(-20, 20)
    ratio = gap.exp()
    weights = token_weights(ratio, settings) * mask
    if settings.sequence == "geometric":
        weights = weights * kept_rollouts(gap, mask, rollout, rollouts, settings.sequence_cap)[rollout]
    metrics = {
        "masked": float(((weights == 0) * mask).sum()),
        "mismatch_k3": float(((ratio - gap - 1) * mask).sum()),
        "ratio_max": float((ratio * mask).max()) if len(ratio) else 0.0,
    }
    return weights, metrics


def token_weights(ratio: Tensor, settings: Correction) -> Tensor:
    cap = settings.token_cap
    if settings.token == "tis":
        return ratio.clamp(max=cap)
    if settings.token in ("mis", "icepop"):
        return ratio * ((ratio >= 1 / cap) & (ratio <= cap))
    return ratio.new_ones(ratio.shape)


def kept_rollouts(gap: Tensor, mask: Tensor, rollout: Tensor, rollouts: int, cap: float) -> Tensor:
    """(R,) 1 where the geometric mean of w lies inside [1/cap, cap]."""
    total = gap.new_zeros(rollouts).index_add_(0, rollout, gap * mask)
    count = gap.new_zeros(rollouts).index_add_(0, rollout, mask).clamp(min=1)
    mean = (total / count).exp()
    return ((mean >= 1 / cap) & (mean <= cap)).to(gap.dtype)
