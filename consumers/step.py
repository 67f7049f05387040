"""One optimizer step from its batch to its version, and what it took.

For: the value that the trainer's loop hands on. Not for: training it or publishing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.messages import Delivery, Group
from consumers.learners.base import StepResult
from consumers.publication import Draft


@dataclass(slots=True, kw_only=True)
class Step:
    """The step to `version`."""

    version: int
    deliveries: tuple[Delivery, ...]
    groups: list[Group]
    """Bodies of the deliveries, in the same order."""
    seed: int
    wait_s: float = 0.0
    """Seconds for which the learner had nothing to train before it."""
    publish_s: float = 0.0
    """Seconds for which the publishing of the version before held the learner up; 0 where the two went side by side."""
    train_s: float = 0.0
    work_s: float = 0.0
    """Its share of the trainer's busy seconds: training and publishing."""
    packed: Sequence[bytes] = ()
    """The groups as batch file and archive hold them."""
    trained: tuple[StepResult, Draft] | None = None
    """What the learner says of it, and the version's tensors."""

    @property
    def names(self) -> set[str]:
        return {one.entry.group for one in self.deliveries}
