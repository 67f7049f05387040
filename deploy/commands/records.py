"""`tidemill inspect`, `audit`: a run's records, and whether they tell the truth."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from broker.errors import Broken, Misconfigured
from deploy.commands.printing import AsJson, RunName, console, print_rows
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root


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
