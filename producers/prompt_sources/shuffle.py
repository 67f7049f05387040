"""The order of a finite source: every row once in a pass, in another order in the next.

For: sources with a size. Not for: which rows there are. The same seed, name and pass give the same order everywhere.
"""

from __future__ import annotations

import random
from functools import lru_cache


class Shuffle:
    """Of the numbers below `size`."""

    def __init__(self, size: int, *, seed: int, name: str) -> None:
        self.size, self.seed, self.name = size, seed, name
        self.order = lru_cache(maxsize=2)(self.shuffled)  # a pass and the one before it, around its end

    def shuffled(self, pass_number: int) -> list[int]:
        rows = list(range(self.size))
        random.Random(f"{self.seed}/{self.name}/{pass_number}").shuffle(rows)
        return rows

    def row(self, pass_number: int, index: int) -> int:
        """The row that comes at `index` of the pass."""
        return self.order(pass_number)[index]
