"""REINFORCE with a constant baseline (Williams 1992, doi 10.1007/BF00992696): needs no siblings.

    A_g = r_g − baseline                         J = Σ over actions of the clipped surrogate / actions

For `group_size = 1`, and as the plainest thing to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from broker.settings import Section, load_section
from consumers.algorithms import credit
from consumers.algorithms.base import Loss, LossBatch
from consumers.algorithms.surrogate import action_ratio, clipped_loss, penalized
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


class Options(Section):
    """`[algorithm] options`"""

    baseline: float = 0.0
    """Subtracted from every reward; a rollout that earns exactly this teaches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforce:
    clip: float
    kl_coef: float
    baseline: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return bool(self.advantages(rewards).any())

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.where(np.abs(rewards - self.baseline) > credit.SAME, rewards - self.baseline, 0).astype(np.float32)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        ratio = action_ratio(policy_logprobs, batch)
        loss = clipped_loss(ratio, batch, low=1 - self.clip, high=1 + self.clip, denominator=batch.total_actions)
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Reinforce:
    options = load_section(Options, "algorithm.options", settings.options)
    return Reinforce(clip=settings.clip, kl_coef=settings.kl_coef, baseline=options.baseline)
