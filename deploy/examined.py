"""One thing that `tidemill doctor` looked at.

For: the parts of the doctor (`doctor`, `installation`). Not for: runs in trouble (`stuck`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "look", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was looked at, what was found, and the mend where that is not well."""

    what: str
    found: str
    grade: Grade = "ok"
    """`look`: a run can start, and something may go wrong or slowly later; `bad`: some run cannot start."""
    mend: str = ""


def graded(what: str, found: str, *, bad: bool = False, look: bool = False, mend: str) -> Examined:
    """`mend` is for one that is not well."""
    grade: Grade = "bad" if bad else "look" if look else "ok"
    return Examined(what=what, found=found, grade=grade, mend="" if grade == "ok" else mend)
