"""Progress bars of long work: on a terminal, on standard error, gone when the work is done.

For: commands whose output may be JSON. Not for: a run's panel (`deploy.progress`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Told = Callable[[int, int], None]
"""Hears how much is done, and how much there is."""


@contextlib.contextmanager
def bytes_read(what: str) -> Generator[Told]:
    with bar(what, DownloadColumn()) as told:
        yield told


@contextlib.contextmanager
def things_done(what: str) -> Generator[Told]:
    with bar(what, MofNCompleteColumn()) as told:
        yield told


@contextlib.contextmanager
def bar(what: str, counter: DownloadColumn | MofNCompleteColumn) -> Generator[Told]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)
