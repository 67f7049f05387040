"""Scored groups to train on, and learners over them: shared by the learner tests and the processes they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.messages import Actions, Group, Prompt, Rollouts, Scores
from broker.settings import ModelSection
from consumers.algorithms import create as create_algorithm
from consumers.learners import create
from consumers.learners.base import Learner
from consumers.settings import AlgorithmSection, TrainSection

SIBLINGS = 4

LR = 3e-4


def groups(seed: int, *, count: int = 6, action: int = 0, context: int = 0) -> list[Group]:
    """Groups of varied lengths, a little off-policy; token ids, or vectors of `action` numbers."""
    rng = np.random.default_rng(seed)

    def actions(number: int, width: int) -> Actions:
        if width:
            return rng.normal(size=(number, width)).astype(np.float32)
        return rng.integers(3, 60, number).astype(np.int32)

    found: list[Group] = []
    for number in range(count):
        lengths = rng.integers(1, 6, SIBLINGS)
        total = int(lengths.sum())
        rollouts = Rollouts(
            texts=("",) * SIBLINGS,
            actions=actions(total, action),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            logprobs=(-4.2 + 0.1 * rng.normal(size=total)).astype(np.float32),
            mask=(rng.random(total) > 0.1).astype(np.uint8),
            spans=np.array([[sibling, 0, length, 0] for sibling, length in enumerate(lengths)], np.int32),
            finishes=("stop",) * SIBLINGS,
        )
        prompt = Prompt(text="", actions=actions(1 if context else 3 + number % 4, context), size=SIBLINGS, seed=0)
        scores = Scores(rewards=rng.integers(0, 2, SIBLINGS).astype(np.float32))
        found.append(Group(id=f"case/0/{number}", kind="train", prompt=prompt, rollouts=rollouts, scores=scores))
    return found


def advantages(batch: list[Group], algorithm: AlgorithmSection | None = None) -> list[NDArray[np.float32]]:
    chosen = create_algorithm(algorithm or AlgorithmSection())
    return [chosen.advantages(group.scores.rewards) for group in batch if group.scores]


def learner(
    model: Path, *, algorithm: AlgorithmSection | None = None, dtype: Any = "float32", lr: float = LR, **train: Any
) -> Learner:
    settings = TrainSection(**train, lr=lr)
    return create(
        settings.learner,
        model_folder=model,
        settings=settings,
        algorithm=algorithm or AlgorithmSection(),
        model=ModelSection(dtype=dtype),
        seed=0,
    )


def exported(learner: Learner, folder: Path) -> bytes:
    folder.mkdir(exist_ok=True)
    learner.export()(folder)
    return (folder / "model.safetensors").read_bytes()
