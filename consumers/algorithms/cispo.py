"""CISPO: the ratio is a weight held below a cap, so that no action loses its gradient (MiniMax 2025, arXiv 2506.13585).

A_g = (r_g − mean r) / (std r + 1e-4)        J = Σ over actions of w · sg(min(π/π_p, 1+clip_high)) · A · log π / actions
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
from consumers.algorithms.surrogate import action_ratio, penalized
from consumers.settings import AlgorithmSection

if TYPE_CHECKING:
    from torch import Tensor


class Options(Section):
    """`[algorithm] options`"""

    clip_high: float = Field(default=1.0, gt=0)
    """How far above 1 a weight may be; there is no bound below, and `clip` is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cispo:
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
        ratio = action_ratio(policy_logprobs, batch).detach()
        held = ratio.clamp(max=1 + self.clip_high)
        value = -(held * batch.advantages * batch.weights * policy_logprobs).sum() / batch.total_actions
        loss = Loss(value=value, metrics={"clipped": float(((held < ratio) * batch.mask).sum())})
        return penalized(loss, policy_logprobs, batch, coef=self.kl_coef, denominator=batch.total_actions)


def make(settings: AlgorithmSection) -> Cispo:
    options = load_section(Options, "algorithm.options", settings.options)
    return Cispo(kl_coef=settings.kl_coef, clip_high=options.clip_high)
