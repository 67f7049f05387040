"""The default run learns: a real model, a real server, real processes, from one command to a better model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import tidemill


def train(runs: Path, *overrides: str, **environment: str) -> dict[str, Any]:
    """Run `tidemill run addition` to its end; its report."""
    done = tidemill("run", "addition", *overrides, runs=runs, limit_s=600, **environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((runs / "latest" / "report.json").read_text())


def assert_learned(report: dict[str, Any]) -> None:
    accuracy = report["held_out_accuracy"]
    assert accuracy["start"] <= 0.5
    assert accuracy["end"] >= 0.9, report
    assert report["staleness"]["max"] <= 1
    books = report["books"]
    assert books["admitted"] == books["trained"] + books["retired"] + books["buried"] + books["open"]


@pytest.mark.timeout(700)
def test_the_default_run_learns_to_add(tmp_path: Path) -> None:
    assert_learned(train(tmp_path))


@pytest.mark.nightly
@pytest.mark.timeout(700)
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_it_learns_from_every_seed(seed: int, tmp_path: Path) -> None:
    assert_learned(train(tmp_path, f"run.seed={seed}"))


@pytest.mark.nightly
@pytest.mark.timeout(700)
def test_it_learns_on_a_processor_with_avx2_only(tmp_path: Path) -> None:
    assert_learned(train(tmp_path, ATEN_CPU_CAPABILITY="avx2"))
