"""Run folders of either world; the real one's model is warmed up once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.worlds import REAL, Begin, World, begin_scripted, new_run, warm_up


@pytest.fixture(scope="session")
def warm_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for real runs, beside whose cache they begin."""
    runs = tmp_path_factory.mktemp("warm")
    warm_up(runs)
    return runs


@pytest.fixture
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Begin:
    def begun(world: World, *overrides: str) -> Path:
        if world is REAL:
            return new_run(REAL, request.getfixturevalue("warm_runs"), *overrides)
        return begin_scripted(tmp_path / "runs", *overrides)

    return begun
