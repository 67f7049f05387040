"""What a step is computed from beside its batch: advantages, and a seed.

For: the trainer, and whoever computes a step again. Not for: the step (`learners`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from broker.errors import Broken
from broker.messages import Group
from consumers.algorithms.base import Algorithm


def advantages_of(algorithm: Algorithm, groups: Sequence[Group]) -> list[NDArray[np.float32]]:
    """(G,) advantages of each group; raises Broken for a group without scores."""
    found: list[NDArray[np.float32]] = []
    for group in groups:
        if group.scores is None:
            raise Broken(
                f"group {group.id} reached the trainer without scores; stopping; this is a bug of a reward consumer"
            )
        found.append(algorithm.advantages(group.scores.rewards))
    return found


def step_seed(run_seed: int, version: int) -> int:
    """The same for a step however often it is replayed."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{version}".encode()).digest()[:4], "little")
