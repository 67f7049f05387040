"""Where running rows keep what they have per position: one buffer per name, all of the same rows and columns.

For: room, and moving rows and columns of all buffers together. Not for: what the buffers mean, or which rows run
(`torch_rows`).

Rows end in the same column: a shorter one starts further right. So one decoding step writes one column of every
buffer, and to any model the rows look like a left-padded batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROOM = 32
"""Columns added at a time, and the least worth shifting for."""


class Columns:
    """Buffers of shape (rows, columns, …), made at their first use.

    >>> columns.reserve(512, 64)
    >>> tokens = columns.buffer("tokens", (), torch.int64)
    """

    def __init__(self) -> None:
        self.rows = 0
        self.columns = 0
        self.buffers: dict[str, Tensor] = {}

    def buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The buffer `name`; `shape` is that of one cell."""
        found = self.buffers.get(name)
        if found is None:
            found = self.buffers[name] = torch.zeros(self.rows, self.columns, *shape, dtype=dtype)
        return found

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(each.numel() * each.element_size() for each in self.buffers.values())

    def reserve(self, rows: int, columns: int, *, keep: int) -> None:
        """Make room for so many, keeping the first `keep` rows. More columns give back the rows that nobody needs."""
        if rows <= self.rows and columns <= self.columns:
            return
        self.rows = rows if columns > self.columns else max(rows, self.rows + self.rows // 4)
        old, self.columns = self.columns, max(self.columns, -(-columns // ROOM) * ROOM)
        for name, buffer in self.buffers.items():
            grown = buffer.new_zeros(self.rows, self.columns, *buffer.shape[2:])
            grown[:keep, :old] = buffer[:keep]
            self.buffers[name] = grown

    def copy_rows(self, source: Tensor, target: Tensor | slice, columns: slice) -> None:
        """Rows `target` become what rows `source` are, in these columns; the two may overlap."""
        for buffer in self.buffers.values():
            buffer[target, columns] = buffer[source, columns]

    def shift(self, rows: int, columns: slice, by: int) -> None:
        """Move these columns of the first `rows` rows by so many to the right (negative: left)."""
        to = slice(columns.start + by, columns.stop + by)
        for buffer in self.buffers.values():
            buffer[:rows, to] = buffer[:rows, columns].clone()


@dataclass(frozen=True, slots=True)
class Window:
    """The keys and values that one forward pass extends: `rows`, reading columns [start, filled), writing [filled,
    end).
    """

    columns: Columns
    rows: slice
    start: int
    filled: int
    end: int

    @property
    def past(self) -> int:
        """Columns already there."""
        return self.filled - self.start

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (n, end-filled, heads, D) and answer all of the window, (n, end-start, heads, D)."""
        return self.extended(f"keys{layer}", keys), self.extended(f"values{layer}", values)

    def extended(self, name: str, states: Tensor) -> Tensor:
        buffer = self.columns.buffer(name, states.shape[2:], states.dtype)
        buffer[self.rows, self.filled : self.end] = states
        return buffer[self.rows, self.start : self.end]
