"""Curves for TensorBoard, read back by TensorBoard itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from consumers.scalars import FOLDER, Scalars


def record(version: int, reward: float) -> dict[str, Any]:
    return {
        "version": version,
        "at": 1000.0 + version,
        "seconds": 2.0,
        "reward": reward,
        "staleness": {"mean": 0.5, "max": 1, "counts": {"0": 4, "1": 4}},
        "groups": 8,
        "rollouts": 32,
        "tokens": 640,
        "zero_signal": 1,
        "wait_s": 0.5,
        "train_s": 1.0,
        "publish_s": 0.5,
        "loss": 0.25,
        "kl": 0.01,
    }


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag → (step, value), as TensorBoard shows them."""
    read = EventAccumulator(str(folder / FOLDER), size_guidance={"scalars": 0})
    read.Reload()
    tags = cast("list[str]", read.Tags()["scalars"])
    return {tag: [(one.step, round(one.value, 6)) for one in read.Scalars(tag)] for tag in tags}


def test_steps_and_evaluations_are_curves(tmp_path: Path) -> None:
    drawn = Scalars(tmp_path, goes_on_at=1)
    for version in (1, 2):
        drawn.step(record(version, version / 10))
    drawn.evaluation({"version": 2, "accuracy": 0.75, "at": 1003.0, "n": 8, "tasks": {"sum": 1.0, "product": 0.5}})
    drawn.close()
    found = curves(tmp_path)
    assert found["reward/mean"] == [(1, pytest.approx(0.1)), (2, pytest.approx(0.2))]
    assert found["train/loss"] == [(1, 0.25), (2, 0.25)]
    assert found["speed/tokens_per_s"][0] == (1, 320.0)
    assert found["length/mean"][0] == (1, 20.0)
    assert found["time/train_s"][0] == (1, 1.0)
    assert (found["eval/accuracy"], found["eval/accuracy/product"]) == ([(2, 0.75)], [(2, 0.5)])
    assert {"train/kl", "staleness/mean", "staleness/max", "reward/groups_without_signal"} <= set(found)


def test_a_trainer_that_comes_back_voids_what_stands_from_its_next_version_on(tmp_path: Path) -> None:
    before = Scalars(tmp_path, goes_on_at=1)
    for version in range(1, 6):
        before.step(record(version, 0.1))
    before.close()
    after = Scalars(tmp_path, goes_on_at=4)
    for version in range(4, 7):
        after.step(record(version, 0.9))
    after.evaluation({"version": 3, "accuracy": 0.5, "at": 1010.0, "n": 8, "tasks": {}})
    after.close()
    found = curves(tmp_path)
    assert found["reward/mean"] == [(v, pytest.approx(0.1 if v < 4 else 0.9)) for v in range(1, 7)]
    assert found["eval/accuracy"] == [(3, 0.5)]


def test_drawing_imports_neither_torch_nor_tensorflow() -> None:
    code = "import consumers.scalars, sys; print(*({'torch', 'tensorflow', 'grpc'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.split() == []
