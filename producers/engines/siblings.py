"""Siblings that finish one by one, put together into the rollouts of their group.

For: engines that sample row by row. Not for: sampling them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from broker.messages import Actions, Group, Rollouts

Finish = Literal["stop", "length"]

Decode = Callable[[Sequence[Actions]], tuple[str, ...]]
"""Actions of each sibling → what a person reads."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """One finished rollout; n actions."""

    actions: NDArray[np.int32]
    """(n,)"""
    logprobs: NDArray[np.float32]
    """(n,)"""
    versions: NDArray[np.int32]
    """(n,) the weight version each action was sampled from."""
    finish: Finish


class Siblings:
    """The siblings of one group, in their order whatever the order they finish in."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.finished: dict[int, Sibling] = {}

    def finish(self, index: int, sibling: Sibling) -> None:
        self.finished[index] = sibling

    @property
    def is_complete(self) -> bool:
        return len(self.finished) == self.group.prompt.size

    def rollouts(self, decode: Decode) -> Rollouts:
        """All of them, once complete."""
        ordered = [self.finished[index] for index in range(self.group.prompt.size)]
        actions = [sibling.actions for sibling in ordered]
        offsets = np.zeros(len(ordered) + 1, np.int32)
        np.cumsum([len(each) for each in actions], out=offsets[1:])
        versions = np.concatenate([sibling.versions for sibling in ordered])
        return Rollouts(
            texts=decode(actions),
            actions=np.concatenate(actions),
            offsets=offsets,
            logprobs=np.concatenate([sibling.logprobs for sibling in ordered]),
            mask=np.ones(len(versions), np.uint8),
            spans=spans_of(versions, offsets),
            finishes=tuple(sibling.finish for sibling in ordered),
        )


def spans_of(versions: NDArray[np.int32], offsets: NDArray[np.int32]) -> NDArray[np.int32]:
    """(N,) version per action, (G+1,) offsets → (S, 4) rows `sibling, start, end, version` of equal version.

    >>> spans_of(np.array([3, 3, 4, 4], np.int32), np.array([0, 3, 4], np.int32)).tolist()
    [[0, 0, 2, 3], [0, 2, 3, 4], [1, 0, 1, 4]]
    """
    opens = np.zeros(len(versions), np.bool_)
    opens[offsets[:-1]] = True
    opens[1:] |= versions[1:] != versions[:-1]
    starts = np.flatnonzero(opens)
    ends = np.append(starts[1:], len(versions))
    sibling = np.searchsorted(offsets, starts, side="right") - 1
    first = offsets[sibling]
    return np.stack([sibling, starts - first, ends - first, versions[starts]], axis=1).astype(np.int32)
