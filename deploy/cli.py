"""`tidemill`: the command line.

For: arguments in, the right part called, errors as one message with its exit code. Not for: doing anything itself.
Imports no heavy library: `--help` and `--check` answer at once.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker.errors import Broken, Misconfigured, TidemillError
from deploy.cores import usable_here
from deploy.cross_checks import warnings_between
from deploy.run_check import load_run, saved_run
from deploy.run_folder import find_run, new_run_folder, runs_root
from deploy.run_paths import check_paths
from deploy.slot_check import check_slots

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Asynchronous RLHF.")
console = Console()

RunName = Annotated[str, typer.Argument(metavar="[RUN]", help="a run's folder or name; the latest if left out")]
AsJson = Annotated[bool, typer.Option("--json", help="for programs")]


@app.command()
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


@app.command()
def resume(run: RunName = "latest") -> None:
    """Go on with a run that was stopped, from its last committed version."""
    from deploy.run_command import perform

    folder = find_run(run, runs_root())
    settings = saved_run(folder)
    if settings.scheduler.slots:
        check_slots(settings)  # it may go on on another machine
    sys.exit(perform(folder, settings, console))


@app.command()
def status(run: RunName = "latest", as_json: AsJson = False) -> None:
    """What a run does now."""
    from deploy.progress import panel
    from deploy.status import as_json as facts
    from deploy.status import current_snapshot

    folder = find_run(run, runs_root())
    snapshot = current_snapshot(folder, saved_run(folder))
    if as_json:
        print_json(facts(folder, snapshot))
    elif snapshot is None:
        console.print(f"{folder.name}: has not begun")
    else:
        console.print(panel(snapshot))


@app.command()
def report(run: RunName = "latest", as_json: AsJson = False) -> None:
    """What a run came to; works without its server."""
    from deploy.closing import closing_lines
    from deploy.curve import draw_curve
    from deploy.report import make_report, save_report

    folder = find_run(run, runs_root())
    facts = make_report(folder)
    save_report(folder, facts)
    if as_json:
        print_json(facts)
        return
    for sentence in closing_lines(folder, facts, draw_curve(folder)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


@app.command()
def inspect(
    what: Annotated[str, typer.Argument(metavar="ledger|dead|weights|open|decisions|runs")],
    run: RunName = "latest",
    as_json: AsJson = False,
) -> None:
    """Records of a run as a table."""
    from deploy import inspection
    from deploy.server import reachable

    if what == "runs":
        print_rows(inspection.runs(runs_root()), as_json)
        return
    if what not in inspection.VIEWS:
        known = ", ".join([*inspection.VIEWS, "runs"])
        raise Misconfigured(f"inspect {what!r}: there is no such record; nothing was done; known: {known}")
    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        rows = inspection.VIEWS[what](inspection.Records.reached(url, folder.name))
    print_rows(inspection.story(rows) if what == "decisions" and not as_json else rows, as_json)


@app.command()
def slots(
    what: Annotated[str, typer.Argument(metavar="[list|move|unpin|drain|env]")] = "list",
    slot: Annotated[str, typer.Argument(metavar="[SLOT]")] = "",
    pool: Annotated[str, typer.Argument(metavar="[POOL]", help="for move")] = "",
    run: Annotated[str, typer.Option(help="a run's folder or name")] = "latest",
    as_json: AsJson = False,
) -> None:
    """A run's slots; `move SLOT POOL` pins one to a pool, `unpin SLOT` leaves it to the scheduler again; `env` tells a
    shell where stock celery commands find them: eval "$(tidemill slots env)".
    """
    import asyncio
    import time

    from deploy import slots_command as command
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
        rows = asyncio.run(command.slot_rows(url, folder))
        print_rows(rows if as_json else [command.shown(row) for row in rows], as_json)
        if rows and not as_json:
            said = asyncio.run(command.last_word(url, folder, time.time()))
            console.print(said, highlight=False, markup=False, soft_wrap=True)


@app.command()
def scheduler(
    run: RunName = "latest",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide and say, move nothing")] = False,
) -> None:
    """Move a run's slots between pools by stream backlog; a run with slots starts one by itself."""
    import os

    from broker.fleet import FLEET_VARIABLE
    from broker.settings import URL_VARIABLE
    from deploy.server import reachable
    from deploy.slot_crew import fleet_of
    from scheduler.__main__ import schedule

    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        os.environ.update({URL_VARIABLE: url, FLEET_VARIABLE: fleet_of(folder.name)})
        sys.exit(schedule(dry_run=dry_run))


@app.command()
def audit(run: RunName = "latest", as_json: AsJson = False) -> None:
    """Whether a run's books tell the truth: counters, open groups, streams and versions; exit code 70 if not."""
    from dataclasses import asdict

    from deploy.audit import audit as checks_of
    from deploy.inspection import Records
    from deploy.server import reachable

    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        checks = checks_of(Records.reached(url, folder.name), folder / "store")
    print_rows([{**asdict(check), "holds": check.holds} for check in checks], as_json)
    if not checks and not as_json:
        console.print(
            "nothing to hold against each other: the server has less than the store; `tidemill resume` mends it"
        )
    sys.exit(0 if all(check.holds for check in checks) else Broken.exit_code)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def redis(
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGUMENT]...")],
    run: Annotated[str, typer.Option(help="a run's folder or name")] = "latest",
) -> None:
    """A Redis command on a run's server; {} stands for the run (`XLEN tm:{}:scored`), {group} for an open group."""
    from deploy.redis_command import ask, stock_command, words_for
    from deploy.redis_reply import shown_reply
    from deploy.server import reachable

    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        words = words_for(url, folder.name, arguments)
        print(stock_command(url, words), file=sys.stderr)
        print(shown_reply(words, ask(url, words)))


@app.command()
def simulate(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help="by name, or all; drift if left out")
    ] = None,
    slots: Annotated[int, typer.Option(help="slots of the virtual fleet")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each system")] = 3,
    versions: Annotated[int, typer.Option(help="weight versions to train; 0 for the workload's own")] = 0,
    placement: Annotated[str, typer.Option(help="pressure, proportional, fixed, or a dotted path")] = "pressure",
    move_cost: Annotated[float, typer.Option(help="seconds a move takes; the workload's own if negative")] = -1.0,
    trace: Annotated[str, typer.Option(metavar="RUN", help="a recorded run as the workload")] = "",
    out: Annotated[Path | None, typer.Option(help="folder for simulation.json and a picture of each run")] = None,
    as_json: AsJson = False,
) -> None:
    """Try a placement on virtual slots: against static splits, co-location, a utilisation rule and an oracle."""
    from deploy.simulate_command import loads_named, perform

    folder = find_run(trace, runs_root()) if trace else None
    loads = loads_named(workloads or ["drift"], folder, slots, versions, move_cost)
    perform(loads, slots, seeds, placement, out, console, as_json=as_json)


@app.command()
def doctor() -> None:
    """Whether a run can start on this machine, and what is missing."""
    from deploy.doctor import findings

    well = True
    for finding in findings():
        well &= finding.is_well
        mark = ("ok   ", "green") if finding.is_well else ("bad  ", "red")
        mend = "" if finding.is_well else f"; {finding.mend}"
        console.print(Text.assemble(mark, f"{finding.what}: {finding.found}{mend}"), soft_wrap=True)
    sys.exit(0 if well else Misconfigured.exit_code)


def print_json(facts: Any) -> None:
    print(json.dumps(facts, indent=1))


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print("nothing there")
        return
    table = Table(*rows[0], box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in rows[0]))
    console.print(table)


def cell(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)}: {', '.join(map(str, value[:2]))}{' …' if len(value) > 2 else ''}" if value else ""
    return "" if value is None else str(value)


def main() -> None:
    """Run the command; an error of ours is one message and its exit code, never a traceback."""
    try:
        app()
    except TidemillError as error:
        print(f"tidemill: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
