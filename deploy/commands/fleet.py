"""`tidemill slots`, `scheduler`: a run's slots, and who moves them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from broker.errors import Misconfigured
from deploy.commands.printing import AsJson, RunName, RunOption, console, print_rows
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root


def slots(
    what: Annotated[str, typer.Argument(metavar="[list|move|unpin|drain|env]")] = "list",
    slot: Annotated[str, typer.Argument(metavar="[SLOT]")] = "",
    pool: Annotated[str, typer.Argument(metavar="[POOL]", help="for move")] = "",
    run: RunOption = "latest",
    as_json: AsJson = False,
) -> None:
    """A run's slots; `move SLOT POOL` pins one to a pool, `unpin SLOT` leaves it to the scheduler again; `env` tells a
    shell where stock celery commands find them: eval "$(tidemill slots env)".
    """
    import asyncio

    from deploy import slots_command as command
    from deploy.fleet_facts import decision_of
    from deploy.screen import decided
    from deploy.server import reachable

    orders: dict[str, tuple[str | None, Any]] = {"move": (pool, "pin"), "unpin": (None, "unpin"), "drain": ("", "pin")}
    is_order = what in orders and bool(slot) and (what == "move") == bool(pool)
    if not is_order and (what not in ("list", "env") or slot):
        words = " ".join(filter(None, (what, slot, pool)))
        raise Misconfigured(f"slots {words}: nothing was done; say list, move SLOT POOL, unpin SLOT, drain SLOT or env")
    folder = find_run(run, runs_root())
    settings = saved_run(folder)
    if what == "env":
        print(command.environment(folder, settings))
        return
    with reachable(folder, settings.broker) as url:
        if is_order:
            console.print(asyncio.run(command.order(url, folder, settings, slot, *orders[what])), highlight=False)
            return
        fleet = asyncio.run(command.fleet_now(url, folder))
    if not fleet.slots and not as_json:
        console.print(command.without_slots(folder, settings), highlight=False, markup=False, soft_wrap=True)
        return
    rows, decision = command.slot_rows(fleet), decision_of(fleet, fleet.run)
    print_rows(rows if as_json else [command.shown(row) for row in rows], as_json)
    if decision is not None and not as_json:
        console.print(decided(decision), soft_wrap=True)


def scheduler(
    run: RunName = "latest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide and say, move nothing")] = False,
) -> None:
    """Move a run's slots between pools by stream backlog; a run with slots starts one by itself."""
    import os

    from deploy.slots_command import fleet_variables
    from scheduler.__main__ import schedule

    folder = find_run(run, runs_root())
    os.environ.update(fleet_variables(folder, saved_run(folder)))
    sys.exit(schedule(dry_run=dry_run))
