"""The buffers of running rows: what is moved stays what it was, in every buffer."""

from __future__ import annotations

import torch

from producers.engines.torch_columns import ROOM, Columns, Window


def filled(rows: int, columns: int) -> tuple[Columns, torch.Tensor]:
    """Columns with two buffers whose cells say where they were."""
    cells = Columns()
    cells.reserve(rows, columns, keep=0)
    marks = torch.arange(rows * columns).view(rows, columns)
    cells.buffer("tokens", (), torch.int64)[:rows, :columns] = marks
    cells.buffer("keys0", (2,), torch.float32)[:rows, :columns] = marks[..., None].float()
    return cells, marks


def assert_holds(cells: Columns, rows: slice, columns: slice, marks: torch.Tensor) -> None:
    assert torch.equal(cells.buffers["tokens"][rows, columns], marks)
    assert torch.equal(cells.buffers["keys0"][rows, columns], marks[..., None].float().expand(*marks.shape, 2))


def test_growing_keeps_the_rows_that_run() -> None:
    cells, marks = filled(4, 8)
    cells.reserve(9, 8 + ROOM + 1, keep=3)
    assert cells.rows == 9 and cells.columns >= 8 + ROOM + 1
    assert_holds(cells, slice(0, 3), slice(0, 8), marks[:3])


def test_room_that_is_there_is_not_made_again() -> None:
    cells, _ = filled(4, 8)
    before = cells.buffers["tokens"]
    cells.reserve(2, 5, keep=2)
    assert cells.buffers["tokens"] is before


def test_shifting_by_less_than_its_width_keeps_everything() -> None:
    cells, marks = filled(3, 12)
    cells.shift(2, slice(4, 12), -4)
    assert_holds(cells, slice(0, 2), slice(0, 8), marks[:2, 4:])
    assert_holds(cells, slice(2, 3), slice(0, 12), marks[2:])


def test_rows_may_be_copied_onto_each_other() -> None:
    cells, marks = filled(4, 6)
    cells.copy_rows(torch.tensor([0, 0, 1, 1]), slice(0, 4), slice(0, 6))
    assert_holds(cells, slice(0, 4), slice(0, 6), marks[[0, 0, 1, 1]])


def test_a_window_reads_what_came_before_and_writes_what_comes() -> None:
    cells, marks = filled(3, 10)
    window = Window(cells, slice(1, 3), start=2, filled=6, end=8)
    new = -torch.ones(2, 2, 2)
    keys, values = window.extend(0, new, new)
    assert window.past == 4 and keys.shape == (2, 6, 2)
    assert torch.equal(keys[:, :4, 0], marks[1:3, 2:6].float()) and torch.equal(keys[:, 4:], new)
    assert torch.equal(values[:, 4:], new)
    assert_holds(cells, slice(0, 1), slice(0, 10), marks[:1])
