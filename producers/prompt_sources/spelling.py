"""Write two letters in turn, so many times: `ab*07=` → `abababa`, with a long tail of counts.

For: the shipped `long-tail` run, whose completions differ in length by a factor of a hundred: where continuous batching
and asynchrony pay. Counts are geometric with mean `mean`, cut at `longest`: half of the answers are shorter than 0.7 of
the mean, one in twenty is longer than three times it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_lowercase

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt

HELD_OUT_SEED = 4321
"""Fixed: accuracy of different runs and seeds is measured on the same prompts."""

HELD_OUT_PAIRS = tuple(
    first + second for place, first in enumerate(ascii_lowercase) for second in ascii_lowercase[place % 7 :: 7]
)
"""About a seventh of all letter pairs is never trained on."""


class Spelling:
    size = None

    def __init__(self, *, seed: int, name: str, longest: int, mean: float) -> None:
        self.seed, self.name, self.longest, self.mean = seed, name, longest, mean
        self.forbidden = frozenset(HELD_OUT_PAIRS)

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        rng = random.Random(f"{self.seed}/{pass_number}/{index}")
        while (pair := rng.choice(ascii_lowercase) + rng.choice(ascii_lowercase)) in self.forbidden:
            continue
        return self.ask(pair, self.count(rng))

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        rng = random.Random(HELD_OUT_SEED)
        return [self.ask(HELD_OUT_PAIRS[place % len(HELD_OUT_PAIRS)], self.count(rng)) for place in range(size)]

    def count(self, rng: random.Random) -> int:
        return min(self.longest, 1 + int(rng.expovariate(1 / self.mean)))

    def ask(self, pair: str, count: int) -> SourcePrompt:
        return SourcePrompt(text=f"{pair}*{count:02}=", answer=(pair * count)[:count])


def make(*, seed: int, name: str = "spelling", longest: int = 96, mean: float = 16.0) -> Spelling:
    if not 1 <= longest <= 99 or mean <= 0:
        raise Misconfigured(
            f"[prompts] longest = {longest}, mean = {mean}; nothing was started; counts have two digits: set longest "
            "to 1 to 99, and mean above 0"
        )
    return Spelling(seed=seed, name=name, longest=longest, mean=mean)
