"""A scripted learner that kills its own process once, in a chosen gap between the batch's choice and the checkpoint.

For: `train.learner = "tests.faults.dying_learner:make"` with `options = {gap = …, mark = …}`. The file `mark` remembers
that it has died already, so that the next trainer lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.messages import Actions, Group
from consumers.learners.base import StepResult
from consumers.learners.scripted import ScriptedLearner

GAPS = ("before the step", "after the step", "while the version is written", "after it is written", "in the checkpoint")
DIES_AT = 5
"""The version whose step is interrupted; a checkpoint is due at it too."""


class DyingLearner(ScriptedLearner):
    def __init__(self, gap: str, mark: Path) -> None:
        super().__init__(pace_s=0.0)
        self.gap, self.mark = gap, mark

    def die(self, gap: str, version: float) -> None:
        if gap == self.gap and version == DIES_AT and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        self.die("before the step", version + 1)
        result = super().step(groups, advantages, version=version, seed=seed)
        self.die("after the step", self.weights)
        return result

    def export(self, folder: Path) -> None:
        super().export(folder)
        if folder.parent.name == "versions":
            self.die("while the version is written", self.weights)

    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        self.die("after it is written", self.weights)
        return super().logprobs(contexts, continuations)

    def save(self, folder: Path) -> None:
        self.die("in the checkpoint", self.weights)
        super().save(folder)


def make(*, settings: Any, **_: object) -> DyingLearner:
    return DyingLearner(settings.options["gap"], Path(settings.options["mark"]))
