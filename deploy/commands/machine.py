"""`tidemill doctor`: whether a run can start here."""

from __future__ import annotations

import sys
from dataclasses import asdict

from rich.text import Text

from broker.errors import Misconfigured
from deploy.commands.printing import AsJson, console, print_json

STYLES = {"ok": "green", "look": "yellow", "bad": "red"}


def doctor(as_json: AsJson = False) -> None:
    """Whether a run can start on this machine, and what is missing; exit code 2 where one cannot."""
    from deploy.doctor import examined
    from deploy.examined import Examined

    found: list[Examined] = []
    for one in examined():
        found.append(one)
        if not as_json:
            mark = (f"{one.grade:<5}", STYLES[one.grade])
            mend = f"; {one.mend}" if one.mend else ""
            console.print(Text.assemble(mark, f"{one.what}: {one.found}{mend}"), soft_wrap=True)
    if as_json:
        print_json([asdict(one) for one in found])
    sys.exit(Misconfigured.exit_code if any(one.grade == "bad" for one in found) else 0)
