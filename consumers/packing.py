"""Which rollouts share a forward pass: micro-batches that never exceed a token budget, padding included.

For: the plan, pure. Not for: tensors. Sorted by length, so that rows of a micro-batch differ little and padding is small.
"""

from __future__ import annotations

from collections.abc import Sequence


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices by micro-batch: rows · longest ≤ budget; a single rollout longer than the budget gets its own.

    >>> micro_batches([3, 9, 3], 12)
    [[1], [0, 2]]
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        if batches and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
    return batches
