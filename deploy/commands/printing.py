"""What commands share on paper: the console, how a run is named, JSON and tables.

For: output of `deploy.commands`. Not for: what is printed, which each command knows.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from deploy.plain_text import plain

console = Console()

RunName = Annotated[str, typer.Argument(metavar="[RUN]", help="a run's folder or name; the latest if left out")]
RunOption = Annotated[str, typer.Option("--run", help="a run's folder or name")]
AsJson = Annotated[bool, typer.Option("--json", help="for programs")]


def print_json(facts: Any) -> None:
    print(json.dumps(facts, indent=1))


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print("nothing there")
        return
    table = Table(
        *(Column(name, overflow="fold") for name in rows[0]), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    for row in rows:
        table.add_row(*(Text(plain(cell(row.get(name)))) for name in rows[0]))
    console.print(table)


def cell(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)}: {', '.join(map(str, value[:2]))}{' …' if len(value) > 2 else ''}" if value else ""
    return "" if value is None else str(value)
