"""How far long work is: on a terminal a bar or a spinner, gone when the work is done; elsewhere a line now and then.

For: commands whose output may be JSON: nothing of this goes there. Not for: a run's panel (`deploy.progress`).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from deploy.progress import can_redraw

EVERY_S = 5.0
"""Seconds between two lines where there is no terminal."""

Told = Callable[[int, int], None]
"""Hears how much is done, and how much there is."""
Sentences = Callable[[str], None]
"""Hears what is done now."""


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
    if not can_redraw(console):
        say = now_and_then(time.monotonic())
        yield lambda done, whole: say(f"{what}: {done:,} of {whole:,}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


@contextlib.contextmanager
def sentences(what: str, console: Console) -> Generator[Sentences]:
    """Beside tables that are printed on `console` meanwhile."""
    if not can_redraw(console):
        yield now_and_then()
        return
    with console.status(what) as status:
        yield status.update


def now_and_then(said: float = float("-inf")) -> Sentences:
    """Lines on standard error, the first at once unless something was `said` then, by the monotonic clock."""

    def say(sentence: str) -> None:
        nonlocal said
        if time.monotonic() - said >= EVERY_S:
            said = time.monotonic()
            print(sentence, file=sys.stderr, flush=True)

    return say
