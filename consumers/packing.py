"""Which rollouts share a forward pass: micro-batches that never exceed a token budget, padding included.

For: the plan, pure. Not for: tensors, or sharing work between ranks (`balance`). Rollouts are sorted, so that the rows
of a micro-batch differ little in length; contexts are padded to the longest context, continuations to the longest
continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Shape(NamedTuple):
    """Actions of one rollout."""

    continuation: int
    context: int


def micro_batches(shapes: Sequence[Shape], budget: int) -> list[list[int]]:
    """Indices by micro-batch: rows · (longest context + longest continuation) ≤ `budget`.

    One rollout that alone is longer than the budget gets a micro-batch of its own.

    >>> micro_batches([Shape(1, 2), Shape(5, 4), Shape(2, 2)], 12)
    [[1], [2, 0]]
    """
    batches: list[list[int]] = []
    width = Shape(0, 0)
    for index in sorted(range(len(shapes)), key=lambda one: (*shapes[one], -one), reverse=True):
        wider = Shape(*map(max, width, shapes[index]))
        if batches and (len(batches[-1]) + 1) * sum(wider) <= budget:
            batches[-1].append(index)
            width = wider
        else:
            batches.append([index])
            width = shapes[index]
    return batches


def cut_to(batches: Sequence[Sequence[int]], number: int) -> list[list[int]]:
    """The same rollouts in exactly `number` ≥ len(batches) micro-batches: largest halved first, then empty ones."""
    cut = [list(batch) for batch in batches]
    while len(cut) < number:
        largest = max(range(len(cut)), key=lambda one: len(cut[one]), default=-1)
        if largest < 0 or len(cut[largest]) < 2:
            return cut + [[] for _ in range(number - len(cut))]
        whole = cut[largest]
        cut[largest : largest + 1] = [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
    return cut
