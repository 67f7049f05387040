"""Sums of two 2-digit numbers, answered from the last digit: `12+34=` → `640`.

For: the shipped `addition` run: a model of 336 k parameters learns it in a minute or two. Least significant digit first
lets carries be worked out in writing order (plain digit order stalls at 0.7).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property

from producers.prompt_sources.base import SourcePrompt

HELD_OUT = 512
HELD_OUT_SEED = 1234
"""Fixed: accuracy of different runs and seeds is measured on the same sums."""


class Addition:
    size = None

    def __init__(self, *, seed: int, name: str = "addition", digits: int = 2) -> None:
        self.seed, self.name, self.digits = seed, name, digits

    @cached_property
    def kept_apart(self) -> list[tuple[int, int]]:
        rng = random.Random(HELD_OUT_SEED)
        pairs = dict.fromkeys((self.draw(rng), self.draw(rng)) for _ in range(4 * HELD_OUT))
        return list(pairs)[:HELD_OUT]

    @cached_property
    def forbidden(self) -> frozenset[tuple[int, int]]:
        return frozenset(self.kept_apart)

    def draw(self, rng: random.Random) -> int:
        return rng.randrange(10**self.digits)

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        rng = random.Random(f"{self.seed}/{pass_number}/{index}")
        while True:
            pair = self.draw(rng), self.draw(rng)
            if pair not in self.forbidden:
                return self.ask(*pair)

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        return [self.ask(*pair) for pair in self.kept_apart[:size]]

    def ask(self, left: int, right: int) -> SourcePrompt:
        text = f"{left:0{self.digits}}+{right:0{self.digits}}="
        return SourcePrompt(text=text, answer=f"{left + right:0{self.digits + 1}}"[::-1])


def make(**options: object) -> Addition:
    return Addition(**options)  # type: ignore[arg-type]
