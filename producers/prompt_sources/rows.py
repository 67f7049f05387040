"""What file-backed sources share: rows in memory, a shuffle per pass, a stable held-out split.

For: `jsonl` and `hf`. Not for: parsing a file. The order of a pass is a permutation seeded by (seed, pass).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt


class Rows:
    """`read(place)` gives the prompt of one row; the last `held_out_rows` rows are never trained on."""

    def __init__(self, name: str, rows: int, read: Callable[[int], SourcePrompt], *, seed: int, held_out_rows: int) -> None:
        if rows <= held_out_rows:
            raise Misconfigured(f"prompt source {name}: {rows} rows, {held_out_rows} of them held out; nothing was started; add rows or lower `held_out`")
        self.name, self.read, self.seed = name, read, seed
        self.size = rows - held_out_rows
        self.rows = rows
        self.order = lru_cache(maxsize=2)(self.shuffled)

    def shuffled(self, pass_number: int) -> list[int]:
        places = list(range(self.size))
        random.Random(f"{self.seed}/{self.name}/{pass_number}").shuffle(places)
        return places

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        return self.read(self.order(pass_number)[index])

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        if self.rows == self.size:
            raise Misconfigured(f"prompt source {self.name} holds no rows back for evaluation; set its option `held_out`, or eval.size = 0")
        return [self.read(place) for place in range(self.size, min(self.rows, self.size + size))]
