"""Sums of two 2-digit numbers, answered from the last digit: `12+34=` → `640`.

For: the shipped `addition` run: a model of 336 k parameters learns it in a minute or two. Least significant digit first
lets carries be worked out in writing order (plain digit order stalls at 0.7).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt

HELD_OUT = 512
"""Sums never given for training; fewer when there are few sums (a tenth of all pairs)."""

HELD_OUT_SEED = 1234
"""Fixed: accuracy of different runs and seeds is measured on the same sums."""


class Addition:
    size = None

    def __init__(self, *, seed: int, name: str, digits: int) -> None:
        self.seed, self.name, self.digits = seed, name, digits
        self.kept_apart = self.choose_apart(min(HELD_OUT, 100**digits // 10))
        self.forbidden = frozenset(self.kept_apart)

    def choose_apart(self, count: int) -> list[tuple[int, int]]:
        rng = random.Random(HELD_OUT_SEED)
        pairs: dict[tuple[int, int], None] = {}
        while len(pairs) < count:
            pairs[self.draw(rng)] = None
        return list(pairs)

    def draw(self, rng: random.Random) -> tuple[int, int]:
        return rng.randrange(10**self.digits), rng.randrange(10**self.digits)

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        rng = random.Random(f"{self.seed}/{pass_number}/{index}")
        while (pair := self.draw(rng)) in self.forbidden:
            continue
        return self.ask(*pair)

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        return [self.ask(*pair) for pair in self.kept_apart[:size]]

    def ask(self, left: int, right: int) -> SourcePrompt:
        text = f"{left:0{self.digits}}+{right:0{self.digits}}="
        return SourcePrompt(text=text, answer=f"{left + right:0{self.digits + 1}}"[::-1])


def make(*, seed: int, name: str = "addition", digits: int = 2) -> Addition:
    if digits < 1:
        raise Misconfigured(f"[prompts] digits = {digits}; nothing was started; numbers have 1 digit or more")
    return Addition(seed=seed, name=name, digits=digits)
