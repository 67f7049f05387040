"""DAPO: GRPO whose clip leaves more room upwards (Yu et al. 2025, arXiv 2503.14476).

    A_g = (r_g − mean r) / (std r + 1e-4)        J = Σ over actions of the surrogate clipped unevenly / actions

An unlikely action can then grow by more than it may shrink, which keeps the policy trying. Its other parts are settings
of the run: `dynamic_sampling = true` retires groups without signal, and a length penalty is a reward part.
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

    clip_high: float = Field(default=0.28, gt=0)
    """Room above 1; `clip` is the room below. The paper's values are 0.2 and 0.28."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dapo:
    clip: float
    kl_coef: float
    clip_high: float

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def has_signal(self, rewards: NDArray[np.float32]) -> bool:
        return credit.differ(rewards)

    def advantages(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        return credit.standardised(rewards)

    def loss(self, policy_logprobs: Tensor, batch: LossBatch) -> Loss:
        ratio = action_ratio(policy_logprobs, batch)
        loss = clipped_loss(ratio, batch, low=1 - self.clip, high=1 + self.clip_high, denominator=batch.total_actions)
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Dapo:
    options = load_section(Options, "algorithm.options", settings.options)
    return Dapo(clip=settings.clip, kl_coef=settings.kl_coef, clip_high=options.clip_high)
