"""What a rollout engine promises.

For: the seam between the rollout producer and whatever samples (torch, vLLM, a script). Not for: choosing one
(`choice`), streams, or when to change weights (`weight_follower`). Every registered engine passes `tests/contract`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from broker.messages import Actions, Group, Rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A context and its continuation, for `logprobs`."""

    context: Actions
    continuation: Actions
    temperature: float = 1.0


class EngineCore(Protocol):
    """A stepping sampler; every method is called from one thread. `SteppedEngine` turns it into an `Engine`."""

    capacity: int
    """Groups worth having in hand (running or waiting). A core that knows with how many of them it has half its full
    speed may say so as `half_at: float`; a scheduler then takes a slot that is rarely full for what it is."""

    def add(self, group: Group) -> None:
        """Take a group; its siblings start at the next step that has room.

        Raises Poison when the group can never be sampled (context plus max_actions over the model's length), with the
        numbers.
        """
        ...

    def step(self) -> list[tuple[str, Rollouts]]:
        """One beat: start what has room, sample one action (or a few) for every running row; groups that finished."""
        ...

    @property
    def is_idle(self) -> bool:
        """Nothing running, nothing waiting."""
        ...

    def load(self, folder: Path, version: int) -> None:
        """Serve the tensors in `folder/model.safetensors` from the next step on.

        Rows in flight go on with the new weights over a recomputed cache; their later actions carry the new version in
        `spans`.
        """
        ...

    def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        """Teacher-forced log-probabilities of each continuation under the weights served now, at each temperature."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """What the rollout producer sees."""

    capacity: int
    version: int
    """Version served now; -1 before the first load."""

    async def generate(self, group: Group) -> Rollouts:
        """Sample the group's siblings. Raises Poison (see `EngineCore.add`) or whatever the engine died of."""
        ...

    async def load(self, folder: Path, version: int) -> None: ...

    async def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]: ...

    async def close(self) -> None: ...
