"""`tidemill run`, `resume`: start a run on this machine, or go on with one."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from broker.settings import run_folder_settings
from deploy.commands.printing import RunName, console
from deploy.cores import usable_here
from deploy.cross_checks import warnings_between
from deploy.run_check import check_whole, load_run, saved_run
from deploy.run_folder import find_run, new_run_folder, run_folders, runs_root
from deploy.run_paths import check_paths
from deploy.run_settings import RunSettings
from deploy.slot_check import check_slots

RULES_S = 2.0
"""Most that a start waits for its rules to be imported; shipped ones take a tenth of a second."""
CHECK_S = 60.0
"""The same for a check, which somebody asked for."""

Elsewhere = Annotated[bool, typer.Option("--elsewhere", help="its processes are started elsewhere: watch and close it")]


def run(
    name: Annotated[str, typer.Argument(help="a shipped run or a TOML file")] = "addition",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SECTION.KEY=VALUE]...", help="what differs from the file, as train.lr=1e-4"),
    ] = None,
    check: Annotated[bool, typer.Option(help="check the settings, open prompts and rules, start nothing")] = False,
    slots: Annotated[int | None, typer.Option(help="slots that move between pools")] = None,
    elsewhere: Elsewhere = False,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="with the newest run of this name, unless it has ended")
    ] = False,
) -> None:
    """Start a run on this machine, or (`--elsewhere`) for a fleet that is started by others."""
    if "=" in name:
        name, overrides = "addition", [name, *(overrides or [])]
    if slots is not None:
        overrides = [*(overrides or []), f"scheduler.slots={slots}"]
    settings = load_run(name, overrides or ())
    if not elsewhere and (slots is not None or settings.scheduler.slots):
        check_slots(settings)
    check_paths(settings)
    from deploy.opening import open_options, open_rules

    open_options(settings)
    if check:
        tell_check(settings)
        return
    if not elsewhere:
        open_rules(settings.reward, RULES_S)  # what takes longer is said by the role that scores
    from deploy.run_command import perform

    if go_on and (folder := unfinished(settings.run.name, runs_root())):
        settings = saved_run(folder)
        check_whole(settings)
    else:
        folder = new_run_folder(settings, runs_root(), datetime.now().astimezone()).resolve()
    sys.exit(perform(folder, settings, console, elsewhere=elsewhere))


def resume(run: RunName = "latest", elsewhere: Elsewhere = False) -> None:
    """Go on with a run that was stopped, from its last committed version."""
    from deploy.run_command import perform

    folder = find_run(run, runs_root())
    settings = saved_run(folder)
    check_whole(settings)
    if not elsewhere and settings.scheduler.slots:
        check_slots(settings)  # it may go on on another machine
    sys.exit(perform(folder, settings, console, elsewhere=elsewhere))


def tell_check(settings: RunSettings) -> None:
    """What can be opened is opened, what may surprise is told. Raises Misconfigured."""
    from deploy.opening import open_prompts, open_rules

    told = [f"warning: {warning}" for warning in warnings_between(settings, usable_here().count)]
    told.append(open_prompts(settings))
    if not open_rules(settings.reward, CHECK_S):
        told.append(f"warning: the rules were not imported within {CHECK_S:g} s, so nobody knows whether they can be")
    for line in [*told, f"{settings.run.name}: the settings are sound"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def unfinished(name: str, root: Path) -> Path | None:
    """The newest run of that name, unless it has ended."""
    from deploy.observer import saved_snapshot

    alike = [folder for folder in run_folders(root) if run_folder_settings(folder)["run"]["name"] == name]
    return alike[-1].resolve() if alike and not saved_snapshot(alike[-1]).get("finished") else None
