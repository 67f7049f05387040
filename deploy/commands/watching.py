"""`tidemill status`, `top`: what a run does now, once or again and again."""

from __future__ import annotations

import sys

from broker.errors import Unavailable
from deploy.commands.printing import AsJson, RunName, console, print_json
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root


def status(run: RunName = "latest", as_json: AsJson = False) -> None:
    """What a run does now, and what is stuck and why; exit code 69 while its server does not answer."""
    from deploy.screen import screen
    from deploy.status import as_json as facts
    from deploy.status import current_snapshot

    folder = find_run(run, runs_root())
    snapshot = current_snapshot(folder, saved_run(folder))
    if as_json:
        print_json(facts(folder, snapshot))
    elif snapshot is None:
        console.print(f"{folder.name}: has not begun")
    else:
        console.print(screen(snapshot))
    if snapshot is not None and snapshot.unanswered:
        sys.exit(Unavailable.exit_code)


def top(run: RunName = "latest") -> None:
    """What `status` shows, redrawn every second; q ends it."""
    import asyncio

    from deploy.top import watch

    folder = find_run(run, runs_root())
    asyncio.run(watch(folder, saved_run(folder), console))
