"""GRPO: a rollout's advantage is its reward standardised within the group (Shao et al. 2024, arXiv 2402.03300).

    A_g = (r_g − mean r) / (std r + 1e-4)        J = Σ over actions of the clipped surrogate / actions of the batch

The paper averages within each rollout first, which makes an action of a long rollout count less; here every action of
the batch counts the same (token mean; Yu et al. 2025, arXiv 2503.14476).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
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
        ratio = action_ratio(policy_logprobs, batch)
        loss = clipped_loss(ratio, batch, low=1 - self.clip, high=1 + self.clip, denominator=batch.total_actions)
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Grpo:
    load_section(Options, "algorithm.options", settings.options)
    return Grpo(clip=settings.clip, kl_coef=settings.kl_coef)
