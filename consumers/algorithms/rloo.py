"""RLOO: a rollout's baseline is the mean reward of its siblings (Ahmadian et al. 2024, arXiv 2402.14740).

    A_g = r_g − mean of the others               J = Σ over rollouts of the clipped surrogate of a rollout / rollouts

A rollout is one action: its ratio is the product over its tokens, and its log-prob their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from broker.settings import Section, load_section
from consumers.algorithms import credit
from consumers.algorithms.base import Loss, LossBatch
from consumers.algorithms.surrogate import clipped_loss, penalized, rollout_ratio
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


class Options(Section):
    """`[algorithm] options`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rloo:
    clip: float
    kl_coef: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return credit.differ(rewards)

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        return credit.against_others(rewards)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        ratio = rollout_ratio(policy_logprobs, batch, mean=False)
        loss = clipped_loss(ratio, batch, low=1 - self.clip, high=1 + self.clip, denominator=batch.total_rollouts)
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_rollouts)


def make(settings: AlgorithmSection) -> Rloo:
    load_section(Options, "algorithm.options", settings.options)
    return Rloo(clip=settings.clip, kl_coef=settings.kl_coef)
