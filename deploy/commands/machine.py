"""`tidemill doctor`: whether a run can start here."""

from __future__ import annotations

import sys

from rich.text import Text

from broker.errors import Misconfigured
from deploy.commands.printing import console


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
