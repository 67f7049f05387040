"""What an algorithm promises.

For: credit for siblings and the loss of a batch, both pure. Not for: off-policy weights (`correction`), optimizer steps
(`learners`), or tokens: actions may be anything that has a log-probability. Torch is imported for its types only: the
reward consumer asks `has_signal` without it.

Axes: G siblings · N actions of all rollouts in a micro-batch, flat, no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch:
    """One micro-batch as the loss sees it: one number per action."""

    behaviour_logprobs: Tensor
    """(N,) float32, recorded at sampling."""
    proximal_logprobs: Tensor | None
    """(N,) what the ratio compares with: the policy when the batch began, or the behaviour policy (`token = "clip"`);
    None when it is the policy itself (one optimizer step per batch)."""
    reference_logprobs: Tensor | None
    """(N,) of the frozen reference, when the algorithm asks for it."""
    advantages: Tensor
    """(N,) the sibling's advantage, repeated over its actions."""
    weights: Tensor
    """(N,) off-policy correction times the action's mask; 0 removes an action's gradient."""
    mask: Tensor
    """(N,) 1 for actions that count, whatever their weight."""
    rollout: Tensor
    """(N,) int64, which rollout of the micro-batch an action belongs to."""
    rollouts: int
    """R in this micro-batch."""
    total_actions: float
    """Σ mask over the optimizer step, its micro-batches and ranks: the loss is a sum divided by this or the next."""
    total_rollouts: float
    """Rollouts of the optimizer step, those without signal included; with k steps per batch, a k-th of the batch's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    value: Tensor
    """Scalar; summed over micro-batches it is the batch's loss."""
    metrics: Mapping[str, float]
    """Sums over this micro-batch's actions (`clipped`, `kl`, …); the learner reports their means per trained action."""


class Algorithm(Protocol):
    needs_reference: bool

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        """Whether training on siblings with these rewards (G,) can change the policy."""
        ...

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        """(G,) rewards → (G,) advantages; exactly 0 for a rollout that teaches nothing, which is then not computed."""
        ...

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        """(N,) log-probs with gradient → loss."""
        ...
