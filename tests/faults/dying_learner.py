"""A learner that kills its own process once, in a chosen gap between the batch's choice and the checkpoint.

For: `train.learner = "tests.faults.dying_learner:make"` with `options = {of = …, gap = …, at = …, mark = …}`: any
learner (`of`), whose process dies on the way to version `at`. The file `mark` remembers that it has died already, so
that the next trainer lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.contract import LedgerLine
from broker.messages import Actions, Group
from broker.redis_trainer import RedisTrainer
from consumers.learners import create
from consumers.learners.base import Learner, StepResult, Write
from consumers.settings import TrainSection

STEP_LOST = ("before the step", "after the step", "while the version is written", "before it is written")
"""The version was not whole: its batch is trained again, by another epoch."""

STEP_KEPT = ("before the commit", "after the commit", "in the checkpoint")
"""The version lay whole in the store: the next trainer finds it there, and replays to it."""

GAPS = (*STEP_LOST, *STEP_KEPT)


class Death:
    """The moment of it."""

    def __init__(self, gap: str, at: int, mark: Path) -> None:
        self.gap, self.at, self.mark = gap, at, mark

    def comes(self, gap: str, version: int) -> None:
        if gap == self.gap and version == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class DyingLearner:
    """`inner`, step by step on its way to the grave; see `consumers.learners.base.Learner`."""

    def __init__(self, inner: Learner, death: Death) -> None:
        self.inner, self.death = inner, death
        self.version = 0
        """Of the weights as they are now."""

    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        self.death.comes("before the step", version + 1)
        result = self.inner.step(groups, advantages, version=version, seed=seed)
        self.version = version + 1
        self.death.comes("after the step", self.version)
        return result

    def export(self) -> Write:
        write, version = self.inner.export(), self.version  # the next step may have begun when it is written

        def into(folder: Path) -> None:
            write(folder)
            if folder.parent.name == "versions":
                self.death.comes("while the version is written", version)

        return into

    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        self.death.comes("before it is written", self.version)
        return self.inner.logprobs(contexts, continuations)

    def save(self, folder: Path) -> None:
        self.inner.save(folder)
        self.death.comes("in the checkpoint", self.version)

    def load(self, folder: Path) -> None:
        self.inner.load(folder)

    def load_weights(self, folder: Path) -> None:
        self.inner.load_weights(folder)

    def save_pretrained(self, folder: Path) -> None:
        self.inner.save_pretrained(folder)

    def close(self) -> None:
        self.inner.close()


def make(*, settings: TrainSection, **others: Any) -> DyingLearner:
    """The learner `of`, which takes whatever other options there are."""
    own = dict(settings.options)
    name, gap, at, mark = (own.pop(key) for key in ("of", "gap", "at", "mark"))
    death = Death(gap, at, Path(mark))
    let_commits_die(death)
    inner = create(name, settings=settings.model_copy(update={"learner": name, "options": own}), **others)
    return DyingLearner(inner, death)


def let_commits_die(death: Death) -> None:
    """No learner is called around the commit, so there death waits in the broker's verb."""
    commit = RedisTrainer.commit

    async def dying(self: RedisTrainer, line: LedgerLine, *rest: Any, **more: Any) -> None:
        death.comes("before the commit", line.version)
        await commit(self, line, *rest, **more)
        death.comes("after the commit", line.version)

    setattr(RedisTrainer, "commit", dying)  # noqa: B010  a class's method is replaced on purpose
