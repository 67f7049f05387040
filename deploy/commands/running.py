"""`tidemill run`, `resume`: start a run on this machine, or go on with one."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import typer

from deploy.commands.printing import RunName, console
from deploy.cores import usable_here
from deploy.cross_checks import warnings_between
from deploy.run_check import load_run, saved_run
from deploy.run_folder import find_run, new_run_folder, runs_root
from deploy.run_paths import check_paths
from deploy.slot_check import check_slots


def run(
    name: Annotated[str, typer.Argument(help="a shipped run or a TOML file")] = "addition",
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...")] = None,
    check: Annotated[bool, typer.Option(help="check the settings and start nothing")] = False,
    slots: Annotated[int | None, typer.Option(help="slots that move between pools")] = None,
) -> None:
    """Start a run on this machine."""
    if "=" in name:
        name, overrides = "addition", [name, *(overrides or [])]
    if slots is not None:
        overrides = [*(overrides or []), f"scheduler.slots={slots}"]
    settings = load_run(name, overrides or ())
    if slots is not None or settings.scheduler.slots:
        check_slots(settings)
    check_paths(settings)
    if check:
        for warning in warnings_between(settings, usable_here().count):
            console.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"{settings.run.name}: the settings are sound", highlight=False)
        return
    from deploy.run_command import perform

    sys.exit(perform(new_run_folder(settings, runs_root(), datetime.now().astimezone()).resolve(), settings, console))


def resume(run: RunName = "latest") -> None:
    """Go on with a run that was stopped, from its last committed version."""
    from deploy.run_command import perform

    folder = find_run(run, runs_root())
    settings = saved_run(folder)
    if settings.scheduler.slots:
        check_slots(settings)  # it may go on on another machine
    sys.exit(perform(folder, settings, console))
