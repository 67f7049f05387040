"""Which rollouts share a forward pass: micro-batches that never exceed a token budget, and hold little padding.

For: the plan, pure. Not for: tensors, or sharing work between ranks (`balance`). Rollouts are sorted, so that the rows
of a micro-batch differ little in length; contexts are padded to the longest context, continuations to the longest
continuation. Padding is computed like everything else, so a pass ends where one more costs less than going on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PADDING = 256
"""Most of it in a pass, tokens: about what one more pass costs. Measured with `tiny-llama` on one core, where anything
from 64 to 256 takes 236 ms, 1 024 takes 298 and no limit 585 (384 rollouts of 1 to 60 actions). Never on a GPU, where
a pass of a small model may cost more."""


class Shape(NamedTuple):
    """Actions of one rollout."""

    continuation: int
    context: int


def micro_batches(shapes: Sequence[Shape], budget: int) -> list[list[int]]:
    """Indices by micro-batch: rows · (longest context + longest continuation) ≤ `budget`, padding ≤ `PADDING`.

    One rollout that alone is longer than the budget gets a micro-batch of its own.

    >>> micro_batches([Shape(1, 2), Shape(5, 4), Shape(2, 2)], 12)
    [[1], [2, 0]]
    """
    batches: list[list[int]] = []
    width, held = Shape(0, 0), 0
    for index in sorted(range(len(shapes)), key=lambda one: (*shapes[one], -one), reverse=True):
        wider, tokens = Shape(*map(max, width, shapes[index])), sum(shapes[index])
        area = (len(batches[-1]) + 1) * sum(wider) if batches else 0
        if batches and area <= budget and area - held - tokens <= PADDING:
            batches[-1].append(index)
            width, held = wider, held + tokens
        else:
            batches.append([index])
            width, held = shapes[index], tokens
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
