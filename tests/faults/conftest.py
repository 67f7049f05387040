"""Run folders of either world; the real one's model is warmed up once, and no launcher outlives its test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.run_folder import launcher_pid
from tests.faults.slot_runs import OnSlots
from tests.faults.slot_worlds import Launch
from tests.faults.worlds import REAL, SCRIPTED, Begin, World, begin_scripted, new_run, warm_up
from tests.integration.test_launcher import left_over, until


@pytest.fixture(scope="session")
def warm_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for real runs, beside whose cache they begin."""
    runs = tmp_path_factory.mktemp("warm")
    warm_up(runs)
    return runs


@pytest.fixture
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    folders: list[Path] = []

    def begun(world: World, *overrides: str) -> Path:
        if world is REAL:
            folders.append(new_run(REAL, request.getfixturevalue("warm_runs"), *overrides))
        else:
            folders.append(begin_scripted(tmp_path / "runs", *overrides))
        return folders[-1]

    yield begun
    for folder in folders:
        end_launcher(folder)


@pytest.fixture
def launch(begin: Begin) -> Iterator[Launch]:
    """(world, slots) → a launched run on so many slots."""
    runs: list[OnSlots] = []

    def launched(world: World, slots: int, *more: str) -> OnSlots:
        kind = SCRIPTED if world.learner == SCRIPTED.learner else REAL
        folder = begin(kind, f"scheduler.slots={slots}", *world.overrides, *more)
        runs.append(OnSlots(folder))
        return runs[-1]

    yield launched
    for run in runs:
        run.close()


def end_launcher(folder: Path) -> None:
    """Of a test that failed in the middle; everything it started ends with it."""
    launcher = launcher_pid(folder)
    if launcher is not None:
        os.kill(launcher, signal.SIGKILL)
        until(lambda: left_over(folder) == [])
