"""A learner without a model: one number that every step raises by one.

For: tests of everything around training, and paced fleets. Not for: learning. The scripted engine computes
the same log-probs from the published file, so that the canary works: action a at position i under weights w has −(1 +
((7a + 13i + 31·round(w)) mod 97) / 97).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load_file, save_file

from broker.messages import Actions, Group
from broker.settings import Section, load_section
from consumers.learners.base import StepResult, Write


class ScriptedLearnerOptions(Section):
    """`[train] options` of this learner: what a step takes, slept instead of computed."""

    pace_s: float = Field(default=0.0, ge=0)
    """Seconds of every step."""
    group_pace_s: float = Field(default=0.0, ge=0)
    """Seconds more for each group of its batch."""
    token_pace_s: float = Field(default=0.0, ge=0)
    """Seconds more for each token that was sampled."""


@dataclass(slots=True)
class ScriptedLearner:
    options: ScriptedLearnerOptions = field(default_factory=ScriptedLearnerOptions)
    weights: float = 0.0

    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        tokens, pace = sum(group.tokens for group in groups), self.options
        time.sleep(pace.pace_s + pace.group_pace_s * len(groups) + pace.token_pace_s * tokens)
        self.weights += 1.0
        return StepResult(metrics={"loss": 0.0, "trained_actions": float(tokens)})

    def export(self) -> Write:
        weights = np.array([self.weights], np.float32)
        return lambda folder: save_file({"weights": weights}, folder / "model.safetensors")

    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        return [scripted_logprobs(one, self.weights) for one in continuations]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.export()(folder)

    def load(self, folder: Path) -> None:
        self.weights = float(load_file(folder / "model.safetensors")["weights"][0])

    def load_weights(self, folder: Path) -> None:
        self.load(folder)

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.export()(folder)

    def close(self) -> None:
        return


def scripted_logprobs(actions: Actions, weights: float) -> NDArray[np.float32]:
    positions = np.arange(len(actions))
    return (-(1 + ((np.asarray(actions, np.int64) * 7 + positions * 13 + 31 * round(weights)) % 97) / 97)).astype(
        np.float32
    )


def make(*, settings: Any, **_: object) -> ScriptedLearner:
    return ScriptedLearner(load_section(ScriptedLearnerOptions, "train.options", settings.options))
