"""`tidemill settings`: what can stand in a run file."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from broker.errors import Misconfigured
from deploy.commands.printing import AsJson, console, print_json, print_rows

if TYPE_CHECKING:
    from deploy.settings_reference import Setting


def settings(
    section: Annotated[str, typer.Argument(metavar="[SECTION]", help="as train; all if left out")] = "",
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="as docs/settings.md")] = False,
) -> None:
    """Every key of a run file: its values, its default, what it means."""
    from deploy.settings_reference import by_heading, page, reference

    chosen = of(section.strip("[]"), reference()) if section else reference()
    if markdown:
        print(page(chosen), end="")
        return
    if as_json:
        print_json([asdict(one) for one in chosen])
        return
    for heading, alike in by_heading(chosen).items():
        console.print(f"\n{heading}", style="bold", highlight=False, markup=False)
        rows = [{"key": one.key, "values": one.values, "default": one.default, "meaning": one.words} for one in alike]
        print_rows(rows, as_json=False)


def of(section: str, known: Sequence[Setting]) -> list[Setting]:
    """Those of one section and what stands in it. Raises Misconfigured with the nearest."""
    names = list(dict.fromkeys(one.section.partition(".")[0] for one in known))
    if section.partition(".")[0] not in names:
        near = difflib.get_close_matches(section, names, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"sections: {', '.join(names)}"
        raise Misconfigured(f'"{section}" is no section of a run file; nothing to show; {hint}')
    return [one for one in known if one.section.partition(".")[0] == section.partition(".")[0]]
