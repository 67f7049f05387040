"""GSPO: GRPO whose ratio is the rollout's, averaged over its length (Zheng et al. 2025, arXiv 2507.18071).

    A_g = (r_g − mean r) / (std r + 1e-4)        s = (Π π/π_p)^(1/length), one for all actions of a rollout
    J = mean over rollouts of the mean over actions of the clipped surrogate

The clip then keeps or leaves a rollout as a whole, which suits mixture-of-experts models whose single ratios are noisy.
Such ratios stay close to 1: the paper clips at 3e-4 below and 4e-4 above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from broker.settings import Section, load_section
from consumers.algorithms import credit
from consumers.algorithms.base import Loss, LossBatch
from consumers.algorithms.surrogate import by_length, clipped_loss, penalized, rollout_ratio
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


class Options(Section):
    """`[algorithm] options`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gspo:
    clip: float
    kl_coef: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return credit.differ(rewards)

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        return credit.standardised(rewards)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        ratio = rollout_ratio(policy_logprobs, batch, mean=True)
        level = by_length(batch)
        loss = clipped_loss(ratio, level, low=1 - self.clip, high=1 + self.clip, denominator=batch.total_rollouts)
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Gspo:
    load_section(Options, "algorithm.options", settings.options)
    return Gspo(clip=settings.clip, kl_coef=settings.kl_coef)
