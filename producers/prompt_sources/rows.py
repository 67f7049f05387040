"""A finite table as a source: shuffled anew in every pass, some of its prompts kept back for evaluation.

For: `jsonl`, `hf` and whatever else has rows. Not for: reading them (a `Table` does).

Which prompts are kept back depends on their text alone,
not on the seed, the order of rows or the run: those with the smallest digests. A prompt that stands in several rows is
kept back with all of them, so none of it is trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.shuffle import Shuffle


class Table(Protocol):
    @property
    def digests(self) -> Sequence[bytes]:
        """Of each row's prompt, see `digest`."""
        ...

    def read(self, row: int) -> SourcePrompt:
        """Raises Poison when the row cannot be read any more."""
        ...


def digest(prompt: str) -> bytes:
    """Eight bytes that stand for a prompt's text."""
    return hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class Rows:
    """`held_out` prompts of `table` are kept back; or all of `evaluation`, another table, are, wherever they stand."""

    def __init__(
        self, name: str, table: Table, *, seed: int, held_out: int = 0, evaluation: Table | None = None
    ) -> None:
        self.name, self.table = name, table
        self.evaluation = table if evaluation is None else evaluation
        apart = smallest(table.digests, held_out) if evaluation is None else dict.fromkeys(evaluation.digests)
        self.given = [row for row, one in enumerate(table.digests) if one not in apart]
        self.size = len(self.given)
        self.shuffle = Shuffle(self.size, seed=seed, name=name)
        first = {one: row for row, one in reversed(list(enumerate(self.evaluation.digests)))}
        self.apart = [first[one] for one in apart]
        if not self.given:
            raise Misconfigured(
                f"prompt source {name}: of {len(table.digests)} rows ({len(set(table.digests))} different prompts) "
                f"none is left to train on when {len(apart)} prompts are held out; nothing was started; add rows or "
                "lower eval.size"
            )

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        return self.table.read(self.given[self.shuffle.row(pass_number, index)])

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        if not self.apart:
            raise Misconfigured(
                f"prompt source {self.name} keeps no prompts back to be measured on; nothing was started; set "
                "[prompts] eval.size, or its option held_out"
            )
        return [self.evaluation.read(row) for row in self.apart[:size]]


def smallest(digests: Sequence[bytes], count: int) -> dict[bytes, None]:
    """The `count` smallest different ones, in order."""
    return dict.fromkeys(sorted(set(digests))[:count])
