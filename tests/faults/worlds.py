"""The two worlds in which every story of death is told: one by script, for `make test`, and one with a real model.

For: settings, run folders, and how far a run goes. Not for: what strikes it (`strikes`) or what must be true after it
(`audit`). Every version stays in the store, so that the whole lineage can be read afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.test_launcher import QUICK, lay_model

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A kind of run, long enough to be struck in its middle and to go on."""

    learner: str
    overrides: tuple[str, ...]
    groups: int
    """B."""
    steps: int
    strike_at: int
    """Version from which on something dies."""
    within_s: float
    """Longest whole run; several times what it takes on two idle cores."""
    learns: bool
    """Whether held-out accuracy rises in so few steps."""


EVERY_VERSION_STAYS = "weights.keep=1000"

SCRIPTED = World(
    learner="scripted",
    overrides=(*QUICK, EVERY_VERSION_STAYS, "train.options={pace_s=0.05}", "train.checkpoint_every=5", "run.steps=30"),
    groups=8,
    steps=30,
    strike_at=8,
    within_s=60,
    learns=False,
)

REAL = World(
    learner="deepspeed",
    overrides=(
        EVERY_VERSION_STAYS,
        "rollout.engine=torch",
        "run.stop_when=''",
        "run.steps=40",
        "train.checkpoint_every=5",
        "prompts.eval.size=256",
        "prompts.eval.every=10",
    ),
    groups=64,
    steps=40,
    strike_at=8,
    within_s=240,
    learns=True,
)

WORLDS = [
    pytest.param(SCRIPTED, id="scripted"),
    pytest.param(REAL, id="real", marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
]

Begin = Callable[..., Path]
"""(world, *overrides) → a run folder, ready to be resumed."""


def new_run(world: World, runs: Path, *overrides: str) -> Path:
    settings = load_run("addition", [*world.overrides, *overrides])
    return new_run_folder(settings, runs, datetime.now(UTC)).resolve()


def begin_scripted(runs: Path, *overrides: str) -> Path:
    """With its model in it: nobody waits for one to be built."""
    folder = new_run(SCRIPTED, runs, *overrides)
    lay_model(folder / "model")
    return folder


def warm_up(runs: Path) -> None:
    """Make the model with which all real runs under `runs` begin; they find it in the cache."""
    command = [sys.executable, "-m", "deploy.initial_model", "--run", str(new_run(REAL, runs))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
