"""GRPO: advantages are rewards standardised within the group (Shao et al. 2024, arXiv 2402.03300).

A_g = (r_g − mean r) / (std r + 1e-4); the loss is averaged over all actions of the batch (DAPO's token mean, arXiv
2503.14476), so long rollouts are not discounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consumers.algorithms.base import Loss, LossBatch
from consumers.algorithms.clipped import clipped_loss
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
    clip: float
    kl_coef: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return bool(rewards.max() > rewards.min())

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        spread = rewards.std(ddof=1) if len(rewards) > 1 else 0.0
        return ((rewards - rewards.mean()) / (spread + 1e-4)).astype(np.float32)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        return clipped_loss(policy_logprobs, batch, clip=self.clip, kl_coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Grpo:
    return Grpo(clip=settings.clip, kl_coef=settings.kl_coef)
