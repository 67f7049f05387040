"""The rows a model is sampling now: they start together by groups, advance one action at a time, and leave one by one.

For: what runs in which row, and the cache under it. Not for: which group starts when (`torch`), or the model's
arithmetic.

All rows have their newest action in the same column (`torch_columns`). Its keys and values are not computed yet: the
next step does that and draws the action after it. A row that ends gives its place to the last one, so the running rows
are always the first ones and a step is a few operations on slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from broker.errors import Broken
from broker.messages import Group
from producers.engines.siblings import Finish, Sibling
from producers.engines.torch_columns import ROOM, Columns, Window
from producers.engines.torch_forward import places
from producers.engines.torch_model import PASS_TOKENS, Model, left_padded
from producers.engines.torch_sampler import sample, streams, uniforms

FACTS = np.dtype(
    [
        ("start", "i8"),  # column of the first prompt token
        ("first", "i8"),  # column of the first action
        ("last", "i8"),  # column of the last action it may have
        ("ticket", "i8"),  # number of its group
        ("sibling", "i8"),
        ("stream", "u8"),  # of its random numbers
        ("temperature", "f8"),
        ("stop", "i8"),  # row of the table of stop sets
    ]
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One row that left."""

    ticket: int
    index: int
    sibling: Sibling


class Rows:
    """See the module. `facts` has one line per running row, in the order of the buffers' rows."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.facts = np.zeros(0, FACTS)
        self.cells = Columns()
        self.column = 0
        self.version = -1
        self.stop_sets: dict[tuple[int, ...], int] = {}
        self.stops = np.zeros((0, model.vocabulary), np.bool_)

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def low(self) -> int:
        """The leftmost column in use."""
        return int(self.facts["start"].min())

    def start(self, groups: Sequence[tuple[int, Group]]) -> None:
        """Read each prompt once, copy it to its siblings, and draw their first actions."""
        ids, pads = left_padded([group.prompt.actions for _, group in groups])
        sizes = [group.prompt.size for _, group in groups]
        running, fresh, length = len(self), sum(sizes), ids.shape[1]
        self.make_room(running + fresh, length)
        begin = self.column - length
        self.buffer("tokens")[running : running + len(groups), begin : self.column] = ids
        logits = self.read(slice(running, running + len(groups)), pads + begin, begin, keep=1)
        siblings = torch.arange(len(groups)).repeat_interleave(torch.tensor(sizes))
        self.cells.copy_rows(running + siblings, slice(running, running + fresh), slice(begin, self.column))
        fresh_facts = [
            self.facts_of(ticket, group, begin + int(pad)) for (ticket, group), pad in zip(groups, pads, strict=True)
        ]
        self.facts = np.concatenate([self.facts, *fresh_facts])
        self.draw(slice(running, running + fresh), logits[siblings])

    def facts_of(self, ticket: int, group: Group, start: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        prompt = group.prompt
        facts = np.zeros(prompt.size, FACTS)
        facts["start"], facts["first"], facts["last"] = start, self.column, self.column + prompt.max_actions - 1
        facts["ticket"], facts["sibling"] = ticket, np.arange(prompt.size)
        facts["stream"], facts["temperature"] = streams(prompt.seed, prompt.size), prompt.temperature
        facts["stop"] = self.stop_set(prompt.stop)
        return facts

    def stop_set(self, stop: tuple[int, ...]) -> int:
        """The row of the table that says which token ids end a row."""
        found = self.stop_sets.setdefault(stop, len(self.stop_sets))
        if found == len(self.stops):
            ends = np.zeros((1, self.model.vocabulary), np.bool_)
            ends[0, [token for token in stop if 0 <= token < self.model.vocabulary]] = True
            self.stops = np.concatenate([self.stops, ends])
        return found

    def advance(self) -> None:
        """Draw one action for every row."""
        self.make_room(len(self), 0)
        low, running = self.low, slice(0, len(self))
        ids = self.buffer("tokens")[running, self.column : self.column + 1]
        positions, valid = places(self.starts(), low, self.column, self.column + 1)
        window = Window(self.cells, running, low, self.column, self.column + 1)
        logits = self.model.forward(ids, positions, valid, window, 1)
        self.column += 1
        self.draw(running, logits[:, 0])

    def draw(self, rows: slice, logits: Tensor) -> None:
        """Sample these rows' actions into the current column. Raises Broken when the weights give no probabilities."""
        facts = self.facts[rows]
        numbers = uniforms(facts["stream"], self.column - facts["first"])
        temperatures = torch.from_numpy(facts["temperature"].astype(np.float32))
        tokens, logprobs = sample(logits, temperatures, torch.from_numpy(numbers))
        if not bool(torch.isfinite(logprobs).all()):
            raise Broken(
                f"version {self.version} gives log-probabilities that are no numbers; sampling stops and the groups "
                f"in hand "
                "go to other producers; the training diverged: lower [train] lr, and resume from an earlier checkpoint"
            )
        self.buffer("tokens")[rows, self.column] = tokens
        self.buffer("logprobs")[rows, self.column] = logprobs
        self.buffer("versions")[rows, self.column] = self.version

    def ended(self) -> Iterator[Ended]:
        """Take out the rows whose newest action is their last."""
        newest = self.buffer("tokens")[: len(self), self.column].numpy()
        stopped = self.stops[self.facts["stop"], newest]
        done = stopped | (self.facts["last"] == self.column)
        if not done.any():
            return
        leaving = np.flatnonzero(done)
        facts, first = self.facts[leaving], int(self.facts["first"][leaving].min())
        names = ("tokens", "logprobs", "versions")
        tokens, logprobs, versions = (self.buffer(name)[leaving, first : self.column + 1].numpy() for name in names)
        tokens = tokens.astype(np.int32)
        skips = (facts["first"] - first).tolist()
        finishes: list[Finish] = ["stop" if each else "length" for each in stopped[leaving]]
        self.close_gaps(done)
        for i, (ticket, index) in enumerate(zip(facts["ticket"].tolist(), facts["sibling"].tolist(), strict=True)):
            own = slice(skips[i], None)
            yield Ended(ticket, index, Sibling(tokens[i, own], logprobs[i, own], versions[i, own], finishes[i]))

    def close_gaps(self, done: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Move the last running rows into the places of those that are done."""
        left = int((~done).sum())
        gaps, movers = np.flatnonzero(done[:left]), left + np.flatnonzero(~done[left:])
        if len(gaps):
            used = slice(self.low, self.column + 1)
            self.cells.copy_rows(torch.from_numpy(movers), torch.from_numpy(gaps), used)
            self.facts[gaps] = self.facts[movers]
        self.facts = self.facts[:left]

    def read_again(self) -> None:
        """Recompute all keys and values under the weights served now."""
        if len(self) and self.column > self.low:
            low = self.low
            size = max(1, PASS_TOKENS // (self.column - low))
            for at in range(0, len(self), size):
                rows = slice(at, min(at + size, len(self)))
                self.pass_over(rows, self.starts()[rows], low)

    def read(self, rows: slice, starts: Tensor, begin: int, *, keep: int) -> Tensor:
        """Passes over columns [begin, column) of these rows; (n, V) logits after the last one."""
        size = max(1, PASS_TOKENS // (self.column - begin))
        parts = [slice(at, min(at + size, rows.stop)) for at in range(rows.start, rows.stop, size)]
        return torch.cat(
            [self.pass_over(part, starts[part.start - rows.start : part.stop - rows.start], begin) for part in parts]
        )

    def pass_over(self, rows: slice, starts: Tensor, begin: int) -> Tensor:
        ids = self.buffer("tokens")[rows, begin : self.column]
        positions, valid = places(starts, begin, begin, self.column)
        window = Window(self.cells, rows, begin, begin, self.column)
        return self.model.forward(ids, positions, valid, window, 1)[:, 0]

    def make_room(self, rows: int, length: int) -> None:
        """At least `length` columns left of the current one and one right of it, for so many rows."""
        if not len(self):
            self.column = length
        elif self.column < length:
            self.shift(length - self.column, rows)
        elif self.column + 1 >= self.cells.columns and self.low >= ROOM:
            self.shift(max(-self.low, length - self.column), rows)
        self.cells.reserve(rows, self.column + 2, keep=len(self))

    def shift(self, by: int, rows: int) -> None:
        used = slice(self.low, self.column + 1)
        self.cells.reserve(rows, self.column + by + 2, keep=len(self))
        self.cells.shift(len(self), used, by)
        self.column += by
        for name in ("start", "first", "last"):
            self.facts[name] += by

    def starts(self) -> Tensor:
        return torch.from_numpy(self.facts["start"])

    def buffer(self, name: str) -> Tensor:
        dtypes = {"tokens": torch.int64, "logprobs": torch.float32, "versions": torch.int32}
        return self.cells.buffer(name, (), dtypes[name])
