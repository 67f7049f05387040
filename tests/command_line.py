"""`tidemill` as a person types it, from any test: one process, its exit code and what it said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from broker.settings import RUNS_VARIABLE

LIMIT_S = 100.0


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "deploy.cli", *words]


def among(runs: Path, **environment: str) -> dict[str, str]:
    """The environment of somebody whose runs lie there."""
    return {**os.environ, RUNS_VARIABLE: str(runs), **environment}


def tidemill(*words: str, runs: Path, limit_s: float = LIMIT_S, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*words),
        env=among(runs, **environment),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
