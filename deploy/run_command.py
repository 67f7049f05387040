"""`tidemill run` and `tidemill resume`: from settings to an exit code, with the report at the end.

For: one launch as a person sees it. Not for: the launch itself (`local`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator
from pathlib import Path

from rich.console import Console

from deploy.progress import Display, can_redraw, display_on
from deploy.run_folder import launching
from deploy.run_settings import RunSettings
from deploy.snapshot import Snapshot, goal_of


def perform(folder: Path, settings: RunSettings, console: Console, *, elsewhere: bool = False) -> int:
    """Launch the run, wait for its end, tell how it went; the exit code. Raises Misconfigured when it runs already.

    `elsewhere`: its processes are started by others, here it is begun, watched and closed.
    """
    with launching(folder):
        display = display_on(console)
        try:
            exit_code = launched(folder, settings, display, elsewhere)
        finally:
            display.close()
        with working(console, "writing report and curve"):
            conclude(folder, console)
    return exit_code


@contextlib.contextmanager
def working(console: Console, words: str) -> Generator[None]:
    """Say what is done meanwhile: a spinner on a terminal, a line elsewhere."""
    if not can_redraw(console):
        print(words, flush=True)
    with console.status(words):
        yield


def launched(folder: Path, settings: RunSettings, display: Display, elsewhere: bool) -> int:
    """The launch, shown from its first moment: its libraries are loaded after the first line stands there."""
    started = time.monotonic()
    display.say(f"run {folder.name} in {folder}")
    display.show(Snapshot(run=folder.name, goal=goal_of(settings), elapsed_s=0.0))
    from deploy.elsewhere import Attendance
    from deploy.local import Launch

    kind = Attendance if elsewhere else Launch
    ending = asyncio.run(kind(folder, settings, display, started=started).run())
    display.say(f"{'finished' if ending.exit_code == 0 else 'stopped'}: {ending.reason}")
    return ending.exit_code


def conclude(folder: Path, console: Console) -> None:
    """Write report and curve, print the end of the story; nothing when no step was ever trained."""
    from deploy.closing import closing_lines
    from deploy.curve import draw_curve
    from deploy.report import make_report, save_report

    report = make_report(folder)
    save_report(folder, report)
    if report["steps"]:
        for sentence in closing_lines(folder, report, draw_curve(folder)):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
