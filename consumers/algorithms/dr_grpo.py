"""Dr. GRPO: GRPO without its two biases (Liu et al. 2025, arXiv 2503.20783).

    A_g = r_g − mean r                           J = Σ over actions of the clipped surrogate / (rollouts · length)

Not dividing by the deviation stops easy and hard prompts from counting more; dividing by a constant, not by what was
sampled, stops long wrong answers from being cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from broker.settings import Section, load_section
from consumers.algorithms import credit
from consumers.algorithms.base import Loss, LossBatch
from consumers.algorithms.surrogate import action_ratio, clipped_loss, penalized
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


class Options(Section):
    """`[algorithm] options`"""

    length: int = Field(default=128, ge=1)
    """Most actions of a rollout, `[rollout] max_tokens`: a constant beside learning rate and gradient clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrGrpo:
    clip: float
    kl_coef: float
    length: int

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return credit.differ(rewards)

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        return credit.centred(rewards)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        ratio = action_ratio(policy_logprobs, batch)
        loss = clipped_loss(
            ratio, batch, low=1 - self.clip, high=1 + self.clip, denominator=batch.total_rollouts * self.length
        )
        return penalized(
            loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_rollouts * self.length
        )


def make(settings: AlgorithmSection) -> DrGrpo:
    options = load_section(Options, "algorithm.options", settings.options)
    return DrGrpo(clip=settings.clip, kl_coef=settings.kl_coef, length=options.length)
