"""One thing that is not as it should be, and the words in which people read it; pure.

For: what `stuck` and `absent` answer. Not for: when something is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.snapshot import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    name: str
    """For programs: `server-silent`, `server-full`, `no-reader`, …"""
    what: str
    why: str
    mend: str
    since_s: float | None = None
    """For so long it has been so; None where nobody knows."""
    holds: bool = True
    """It holds the run up; else the run goes on, and a person should look."""

    @property
    def sentence(self) -> str:
        return f"{self.what}: {self.why}; {self.mend}"


def gone(name: str, process: Process) -> str:
    return (
        f"{name} (pid {process.pid}) has not reported for {duration(process.age_s)}, last {process.stage!r}: "
        "it is frozen or dead"
    )


def goodbye(name: str, process: Process) -> str:
    return f"{name} left {duration(process.age_s)} ago, last {process.stage!r}"


def duration(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def megabytes(value: int) -> str:
    return f"{value / 2**20:.1f}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
