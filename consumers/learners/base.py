"""What a learner promises: batches in, weights out, the same numbers when replayed.

For: the seam between the trainer consumer and DeepSpeed (or a script). Not for: streams, versions, the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from broker.messages import Actions, Group

Write = Callable[[Path], None]
"""Writes into a folder what was put aside, as often as it is called, from any thread, also while training goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """`loss`, `grad_norm`, `kl`, `mismatch_k3`, `ratio_mean`, `ratio_max`, `clipped_share`, `masked_share`, `ess`,
    `trained_actions`, `compute_s`."""


class Learner(Protocol):
    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        """Train on one batch (scored groups, (G,) advantages each): the step from `version` to `version + 1`.

        Deterministic in (state, groups, advantages, seed) on a CPU. However many optimizer steps it takes, it is one
        version. Zero advantages are left out of the passes but count in the denominators, unless a penalty to a
        reference gives them a gradient too; a batch without any gradient changes nothing.
        """
        ...

    def export(self) -> Write:
        """Put the weights aside as they are now; what is returned writes `model.safetensors`, which engines load."""
        ...

    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        """Log-probs under the weights as they are now (the canary's expectation), temperature 1."""
        ...

    def save(self, folder: Path) -> None:
        """Everything `load` needs to go on as if never stopped: model, optimizer, schedule, RNG."""
        ...

    def load(self, folder: Path) -> None: ...

    def load_weights(self, folder: Path) -> None:
        """Take only the tensors of a published version (used when replay is not bit-exact)."""
        ...

    def save_pretrained(self, folder: Path) -> None: ...

    def close(self) -> None: ...
