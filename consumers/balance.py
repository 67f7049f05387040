"""Share work between ranks so that the one with most has little more than the others.

For: the partition, pure. Not for: what fits into one forward pass (`packing`).

The largest differencing method: begin with one partial solution per item; again and again join the two whose loads
differ most, the heaviest share of one with the lightest of the other, until one solution is left. For two shares the
difference left over shrinks as n^(−c·log n), against 1/n for handing the next largest item to the lightest share.

Source: Karmarkar and Karp 1982, "The differencing method of set partitioning", UCB/CSD 82/113; Michiels et al. 2003 for
more than two shares.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Share(NamedTuple):
    load: float
    items: tuple[int, ...]


def balanced(costs: Sequence[float], shares: int) -> list[list[int]]:
    """Indices of `costs` (≥ 0) by share, ascending within each; the heaviest share first, shares may be empty.

    >>> balanced([8, 7, 6, 5, 4], 2)
    [[1, 2], [0, 3, 4]]
    """
    empty = [Share(0.0, ())] * (shares - 1)
    solutions = [([Share(float(cost), (index,)), *empty], index) for index, cost in enumerate(costs)]
    heap = [(-spread(solution), index, solution) for solution, index in solutions]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, index, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        joined = join(first, second)
        heapq.heappush(heap, (-spread(joined), index, joined))
    found = heap[0][2] if heap else [Share(0.0, ())] * shares
    return [sorted(share.items) for share in found]


def spread(solution: Sequence[Share]) -> float:
    return solution[0].load - solution[-1].load


def join(first: Sequence[Share], second: Sequence[Share]) -> list[Share]:
    """Both are sorted, heaviest first; so is the answer."""
    pairs = zip(first, reversed(second), strict=True)
    merged = [Share(one.load + other.load, one.items + other.items) for one, other in pairs]
    return sorted(merged, key=lambda share: (-share.load, share.items))
