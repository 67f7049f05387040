"""Write a letter so many times: `a*7=` → `aaaaaaa`, with a long tail of counts.

For: the shipped `long-tail` run, whose completions differ in length by a factor of fifty: where continuous batching and
asynchrony pay. Counts are geometric with a mean of about 12, cut at `longest`.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

from producers.prompt_sources.base import SourcePrompt

HELD_OUT_SEED = 4321


class Spelling:
    size = None

    def __init__(self, *, seed: int, name: str = "spelling", longest: int = 60, mean: float = 12.0) -> None:
        self.seed, self.name, self.longest, self.mean = seed, name, longest, mean

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        rng = random.Random(f"{self.seed}/{pass_number}/{index}")
        while True:
            first, second, count = self.draw(rng)
            if (first + second) not in HELD_OUT_PAIRS:
                return self.ask(first, second, count)

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        rng = random.Random(HELD_OUT_SEED)
        pairs = sorted(HELD_OUT_PAIRS)
        return [self.ask(*pairs[place % len(pairs)], self.draw(rng)[2]) for place in range(size)]

    def draw(self, rng: random.Random) -> tuple[str, str, int]:
        count = min(self.longest, 1 + int(rng.expovariate(1 / self.mean)))
        return rng.choice(string.ascii_lowercase), rng.choice(string.ascii_lowercase), count

    def ask(self, first: str, second: str, count: int) -> SourcePrompt:
        written = "".join((first, second)[place % 2] for place in range(count))
        return SourcePrompt(text=f"{first}{second}*{count:02}=", answer=written)


HELD_OUT_PAIRS = frozenset(
    first + second for place, first in enumerate(string.ascii_lowercase) for second in string.ascii_lowercase[place % 7 :: 7]
)
"""About a seventh of all letter pairs is never trained on."""


def make(**options: object) -> Spelling:
    return Spelling(**options)  # type: ignore[arg-type]
