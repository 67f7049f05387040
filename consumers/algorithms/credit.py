"""Credit within a group: what a sibling's reward says when it is compared with its siblings'.

For: advantages, pure. Not for: losses. G siblings; all functions map (G,) rewards to (G,) float32. Siblings without
difference get exactly 0, so that the learner can leave them out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAME = 1e-6
"""Rewards closer than this are the same: weighted sums of parts differ in their last bits."""

Rewards = NDArray[np.float32]


def differ(rewards: Rewards) -> bool:
    """Whether there is anything to compare."""
    return len(rewards) > 1 and float(np.ptp(rewards)) > SAME


def centred(rewards: Rewards) -> Rewards:
    """r − mean r"""
    if not differ(rewards):
        return np.zeros(len(rewards), np.float32)
    return (rewards - rewards.mean(dtype=np.float64)).astype(np.float32)


def standardised(rewards: Rewards, floor: float = 1e-4) -> Rewards:
    """(r − mean r) / (std r + floor), with the deviation of a sample (G−1)."""
    if not differ(rewards):
        return np.zeros(len(rewards), np.float32)
    return (centred(rewards) / (rewards.std(ddof=1, dtype=np.float64) + floor)).astype(np.float32)


def against_others(rewards: Rewards) -> Rewards:
    """r_g − mean of the other siblings' rewards, which is (r_g − mean r)·G/(G−1)."""
    siblings = len(rewards)
    return centred(rewards) * np.float32(siblings / max(1, siblings - 1))
