"""Which source a cursor falls on: weighted mixtures that hold their shares, and exact passes over finite sources.

For: the arithmetic, pure. Not for: reading data. After n prompts each source has had n·share of them, off by less than one
(the largest-deficit rule is a quota method), and the place of a cursor depends on nothing but the cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm


def cycle(weights: Sequence[float], longest: int = 10_000) -> list[int]:
    """One period of source indices in which each appears exactly in proportion to its weight.

    >>> cycle([2, 1])
    [0, 1, 0]
    """
    shares = [Fraction(weight).limit_denominator(1000) for weight in weights]
    total = sum(shares)
    fractions = [(share / total).limit_denominator(longest) for share in shares]
    period = min(lcm(*(one.denominator for one in fractions)), longest)
    taken = [0] * len(weights)
    order: list[int] = []
    for place in range(1, period + 1):
        deficits = [share * place - had for share, had in zip(fractions, taken, strict=True)]
        chosen = max(range(len(weights)), key=lambda source: (deficits[source], -source))
        taken[chosen] += 1
        order.append(chosen)
    return order


class Places:
    """cursor → (source, how many of its prompts came before)."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.order = cycle(weights)
        self.before: list[int] = []
        seen = [0] * len(weights)
        for source in self.order:
            self.before.append(seen[source])
            seen[source] += 1
        self.per_cycle = seen

    def at(self, cursor: int) -> tuple[int, int]:
        rounds, place = divmod(cursor, len(self.order))
        source = self.order[place]
        return source, rounds * self.per_cycle[source] + self.before[place]
