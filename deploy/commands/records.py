"""`tidemill inspect`, `audit`: a run's records, and whether they tell the truth."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from broker.errors import Broken, Misconfigured
from deploy.commands.printing import AsJson, RunName, RunOption, console, print_rows
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root

DECISIONS = ("replay", "drop")
"""What can be done about a buried group."""


def inspect(
    what: Annotated[str, typer.Argument(metavar="ledger|dead|weights|open|decisions|runs")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]", help="a run's folder or name; after dead also: list, replay GROUP…, drop GROUP…"
        ),
    ] = None,
    run: RunOption = "latest",
    as_json: AsJson = False,
    everything: Annotated[bool, typer.Option("--all", help="dead replay, drop: every buried group")] = False,
    wait: Annotated[float, typer.Option(min=0, help="dead replay: seconds to wait for places below the cap")] = 30.0,
) -> None:
    """Records of a run as a table; `dead replay GROUP…` tries buried groups again, `dead drop GROUP…` gives them up."""
    from deploy import inspection
    from deploy.asking import asking
    from deploy.server import reachable

    words = words or []
    if what == "runs":
        print_rows(inspection.runs(runs_root()), as_json)
        return
    if what not in inspection.VIEWS:
        known = ", ".join([*inspection.VIEWS, "runs"])
        raise Misconfigured(f"inspect {what!r}: there is no such record; nothing was done; known: {known}")
    if what == "dead" and words[:1] in [[word] for word in DECISIONS]:
        decide(words[0], words[1:], run, wait, everything=everything, as_json=as_json)
        return
    if what == "dead" and words[:1] == ["list"]:
        words = words[1:]
    if len(words) > 1:
        raise Misconfigured(f"inspect {what} {' '.join(words)}: nothing was done; name one run")
    folder = find_run(words[0] if words else run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url, asking(url):
        rows = inspection.VIEWS[what](inspection.Records.reached(url, folder.name))
    in_words = inspection.IN_WORDS.get(what)
    print_rows(in_words(rows) if in_words and not as_json else rows, as_json)


def decide(verb: str, groups: list[str], run: str, wait_s: float, *, everything: bool, as_json: bool) -> None:
    """Exit code 1 when a group stays as it was."""
    import asyncio

    from deploy import dead
    from deploy.server import reachable

    if bool(groups) == everything:
        raise Misconfigured(f"inspect dead {verb}: nothing was done; name the groups, or say --all")
    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        rows = asyncio.run(dead.decide(url, folder.name, verb, groups, wait_s))
    print_rows(rows, as_json)
    sys.exit(0 if all(row["answer"] == "done" for row in rows) else 1)


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
