"""`tidemill top`: the screen of `status`, drawn anew every second until somebody has seen enough.

For: watching any run, launched here or elsewhere, without a part in it. Not for: one look (`status`), how it is looked
(`looks`) or what is drawn (`screen`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import termios
import tty
from collections.abc import Generator
from pathlib import Path

from rich.console import Console

from deploy.looks import Looks
from deploy.progress import Display, LiveDisplay, PlainDisplay, can_redraw
from deploy.run_settings import RunSettings

EVERY_S = 1.0


async def watch(folder: Path, settings: RunSettings, console: Console) -> None:
    """consumes: looks, keys   produces: screens   waits for: time   unblocked by: time, `q` or Ctrl-C

    In a pipe there are no keys: there it also ends when the run has ended.
    """
    stop = asyncio.Event()
    alone = can_redraw(console)
    display: Display = LiveDisplay(console, alone=True) if alone else PlainDisplay(console)
    looks = Looks(folder, settings)
    try:
        with keys(stop):
            while not stop.is_set():
                snapshot = await looks.look()
                if snapshot is not None:
                    display.show(snapshot)
                if not alone and (snapshot is None or snapshot.finished or not snapshot.live):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), EVERY_S)
    finally:
        display.close()
        await looks.close()


@contextlib.contextmanager
def keys(stop: asyncio.Event) -> Generator[None]:
    """`q` and Ctrl-C set `stop`; the terminal is as it was afterwards."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    is_terminal = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if is_terminal else None
    if is_terminal:
        tty.setcbreak(sys.stdin)
        loop.add_reader(sys.stdin, lambda: stop.set() if sys.stdin.read(1) in ("q", "Q", "") else None)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        if before is not None:
            loop.remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
