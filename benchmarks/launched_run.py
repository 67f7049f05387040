"""One real run as a person would type it, timed from outside, and what its folder says afterwards.

For: `startup` and `runs`. Not for: what is made of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deploy.records import Record, records
from deploy.report import make_report

COMMAND = Path(sys.executable).parent / "tidemill"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """A run that has ended."""

    folder: Path
    typed_at: float
    """Seconds since 1970; so are the moments below."""
    first_output_at: float
    ended_at: float

    @property
    def report(self) -> dict[str, Any]:
        return make_report(self.folder)

    @property
    def steps(self) -> list[Record]:
        return records(self.folder / "steps.jsonl")

    @property
    def evaluations(self) -> list[Record]:
        return records(self.folder / "evaluations.jsonl")

    def logged_at(self, process: str, event: str, **facts: Any) -> float:
        """When `process` first logged `event` with these facts. Raises LookupError when it never did."""
        for line in records(self.folder / "logs" / f"{process}.jsonl"):
            if line["event"] == event and facts.items() <= line.items():
                return datetime.fromisoformat(line["timestamp"]).timestamp()
        raise LookupError(f"{self.folder}/logs/{process}.jsonl holds no {event!r} {facts or ''}")


def launch(root: Path, name: str, overrides: Sequence[str]) -> LaunchedRun:
    """`tidemill run NAME …` with its folders under `root`, to its end. Raises RuntimeError when it fails."""
    typed_at = time.time()
    with subprocess.Popen(
        [COMMAND, "run", name, *overrides],
        env={**os.environ, "TIDEMILL_RUNS": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        first_output_at = time.time()
        said += process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"tidemill run {name} ended with exit code {process.returncode}; it said:\n{said}")
    return LaunchedRun(
        folder=(root / "latest").resolve(), typed_at=typed_at, first_output_at=first_output_at, ended_at=time.time()
    )
