"""`tidemill run` and `tidemill resume`: from settings to an exit code, with the report at the end.

For: one launch as a person sees it. Not for: the launch itself (`local`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from deploy.closing import closing_lines
from deploy.curve import draw_curve
from deploy.local import Launch
from deploy.progress import display_on
from deploy.report import make_report, save_report
from deploy.run_folder import launching
from deploy.run_settings import RunSettings


def perform(folder: Path, settings: RunSettings, console: Console) -> int:
    """Launch the run, wait for its end, tell how it went; the exit code. Raises Misconfigured when it runs already."""
    with launching(folder):
        display = display_on(console)
        try:
            ending = asyncio.run(Launch(folder, settings, display).run())
        finally:
            display.close()
        display.say(f"{'finished' if ending.exit_code == 0 else 'stopped'}: {ending.reason}")
        conclude(folder, console)
    return ending.exit_code


def conclude(folder: Path, console: Console) -> None:
    """Write report and curve, print the end of the story; nothing when no step was ever trained."""
    report = make_report(folder)
    save_report(folder, report)
    if report["steps"]:
        for sentence in closing_lines(folder, report, draw_curve(folder)):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
