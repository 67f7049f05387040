"""Engine `torch`: continuous batching over any transformers causal language model, in one CPU thread.

For: which groups start when, and the `EngineCore` contract. Not for: rows in flight (`torch_rows`), the model's
arithmetic (`torch_model`), drawing (`torch_sampler`), or the thread (`stepped`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from broker.messages import Group, Rollouts
from broker.settings import load_section
from producers.engines.base import Continuation
from producers.engines.siblings import Siblings
from producers.engines.texts import Reader
from producers.engines.torch_columns import ROOM, Columns
from producers.engines.torch_model import Model
from producers.engines.torch_rows import Rows
from producers.settings import RolloutSection, TorchOptions

WAITING = 8
"""One group waits for every so many that run, so that a row that ends is filled in the same step."""


class TorchCore:
    """See `base.EngineCore`."""

    def __init__(self, model: Model, reader: Reader, *, max_rows: int, group_size: int, cache_mb: int) -> None:
        self.model = model
        self.reader = reader
        self.max_rows = max_rows
        self.cache_bytes = cache_mb << 20
        fitting = max(1, max_rows // group_size)
        self.capacity = fitting + max(1, fitting // WAITING)
        self.rows = Rows(model)
        self.waiting: deque[tuple[int, Group]] = deque()
        self.started: dict[int, Siblings] = {}
        self.tickets = 0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.started

    def add(self, group: Group) -> None:
        self.model.check(group.prompt.actions, group.prompt.max_actions)
        self.waiting.append((self.tickets, group))
        self.tickets += 1

    @torch.inference_mode()
    def step(self) -> list[tuple[str, Rollouts]]:
        """Advance every running row, then start what has room: a group's first action needs no step of its own."""
        finished: list[tuple[str, Rollouts]] = []
        if len(self.rows):
            self.rows.advance()
            finished += self.collect()
        groups = self.next_groups()
        if groups:
            self.started.update((ticket, Siblings(group)) for ticket, group in groups)
            self.rows.start(groups)
            finished += self.collect()
        return finished

    def next_groups(self) -> list[tuple[int, Group]]:
        """Waiting groups that fit, oldest first; one that is larger than everything starts when nothing else runs."""
        if not len(self.rows) and self.rows.cells.size > self.cache_bytes:
            self.rows.cells = Columns()
        rows, chosen = len(self.rows), list[tuple[int, Group]]()
        width = max((length(each.group) for each in self.started.values()), default=0)
        while self.waiting:
            size, width = self.waiting[0][1].prompt.size, max(width, length(self.waiting[0][1]))
            if rows and (rows + size > self.max_rows or not self.fits(rows + size, width)):
                break
            chosen.append(self.waiting.popleft())
            rows += size
        return chosen

    def fits(self, rows: int, width: int) -> bool:
        """Whether so many rows of up to `width` columns may be held at the same time."""
        return rows * max(width + ROOM, self.rows.cells.columns) * self.model.cell_bytes <= self.cache_bytes

    def collect(self) -> list[tuple[str, Rollouts]]:
        """Groups whose last sibling has ended now."""
        complete: list[tuple[str, Rollouts]] = []
        for ended in self.rows.ended():
            siblings = self.started[ended.ticket]
            siblings.finish(ended.index, ended.sibling)
            if siblings.is_complete:
                del self.started[ended.ticket]
                complete.append((siblings.group.id, siblings.rollouts(self.reader)))
        return complete

    @torch.inference_mode()
    def load(self, folder: Path, version: int) -> None:
        self.model.load(folder)
        self.rows.version = version
        self.rows.read_again()

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        return self.model.logprobs(sequences)

    def close(self) -> None:
        self.waiting.clear()


def length(group: Group) -> int:
    """Columns a row of the group may come to."""
    return len(group.prompt.actions) + group.prompt.max_actions


def make(model_folder: Path, settings: RolloutSection, *, seed: int) -> TorchCore:
    """The engine on a model folder. A group brings its own seed, so `seed` is not needed here."""
    options = load_section(TorchOptions, "rollout.options", settings.options)
    return TorchCore(
        Model(model_folder, forward=options.forward),
        Reader(model_folder),
        max_rows=settings.max_rows,
        group_size=settings.group_size,
        cache_mb=options.cache_mb,
    )
