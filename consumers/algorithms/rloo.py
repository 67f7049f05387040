"""RLOO: each sibling's baseline is the mean of the others (Ahmadian et al. 2024, arXiv 2402.14740).

A_g = r_g − mean of r without g = (r_g − mean r) · G/(G−1).
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
class Rloo:
    clip: float
    kl_coef: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return bool(rewards.max() > rewards.min())

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        siblings = len(rewards)
        scale = siblings / (siblings - 1) if siblings > 1 else 0.0
        return ((rewards - rewards.mean()) * scale).astype(np.float32)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        return clipped_loss(policy_logprobs, batch, clip=self.clip, kl_coef=self.kl_coef, denominator=float(batch.total_rollouts))


def make(settings: AlgorithmSection) -> Rloo:
    return Rloo(clip=settings.clip, kl_coef=settings.kl_coef)
