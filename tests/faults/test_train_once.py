"""Every group trains exactly once, whatever dies: the trainer in every gap, the server with and without its data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from broker import embedded_server
from broker.weights import VersionStore, chain
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.faults.dying_learner import GAPS
from tests.integration.test_launcher import QUICK, Launched, assert_balanced, lay_model, left_over, report_of


def a_run(tmp_path: Path, *overrides: str) -> Path:
    from datetime import UTC, datetime

    settings = load_run("addition", [*QUICK, "train.checkpoint_every=5", *overrides])
    folder = new_run_folder(settings, tmp_path / "runs", datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    return folder


def lineage_of(folder: Path) -> list[str]:
    """Ids trained by the surviving lineage, as far back as the store keeps it."""
    store = VersionStore(folder / "store")
    manifests = store.manifests()
    newest = max(manifests, key=lambda one: (one.version, one.epoch))
    return [group for one in chain(manifests, newest.version, newest.epoch) for group in one.groups]


def versions_of(folder: Path) -> list[int]:
    return [json.loads(line)["version"] for line in (folder / "steps.jsonl").read_text().splitlines()]


def assert_trained_once(folder: Path, versions: int) -> None:
    trained = lineage_of(folder)
    assert len(trained) == len(set(trained)), "a group trained twice"
    assert report_of(folder)["books"]["trained"] == 8 * versions
    assert report_of(folder)["staleness"]["max"] <= 1
    assert versions_of(folder) == sorted(versions_of(folder)), "versions went back"
    assert_balanced(folder)
    assert left_over(folder) == []


@pytest.mark.parametrize("gap", GAPS)
def test_a_trainer_killed_in_any_gap_loses_nothing_and_trains_nothing_twice(gap: str, tmp_path: Path) -> None:
    mark = tmp_path / "died"
    folder = a_run(
        tmp_path,
        'train.learner="tests.faults.dying_learner:make"',
        f'train.options={{gap = "{gap}", mark = "{mark}"}}',
        "weights.canary=false",
        "run.steps=12",
    )
    launched = Launched(folder, PYTHONPATH=str(Path(__file__).parents[2]))
    assert launched.end(within_s=60) == 0, launched.text()
    assert mark.exists(), "the trainer never came to this gap"
    assert_trained_once(folder, 12)


def test_flushall_in_the_middle_of_a_run_loses_no_group(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "train.options={pace_s=0.1}", "run.steps=30")
    launched = Launched(folder)
    launched.reach(6)
    with redis.Redis.from_url(embedded_server.address(folder / "redis")) as client:
        client.flushall()
    assert launched.end(within_s=60) == 0, launched.text()
    assert_trained_once(folder, 30)


@pytest.mark.parametrize("staleness", [0, 4])
def test_every_bound_makes_progress_and_holds(staleness: int, tmp_path: Path) -> None:
    folder = a_run(tmp_path, f"train.staleness={staleness}", "run.steps=15")
    launched = Launched(folder)
    assert launched.end(within_s=60) == 0, launched.text()
    assert report_of(folder)["steps"] == 15
    assert report_of(folder)["staleness"]["max"] <= staleness
    assert_balanced(folder)


def test_a_second_trainer_fences_the_first_and_harms_nothing(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    folder = a_run(tmp_path, "train.options={pace_s=0.1}", "run.steps=40")
    launched = Launched(folder)
    launched.reach(5)
    env = {**os.environ, "TIDEMILL_BROKER_URL": embedded_server.address(folder / "redis")}
    command = [sys.executable, "-m", "consumers", "trainer", "--run", str(folder), "--name", "trainer-9"]
    second = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        code = launched.end(within_s=60)
    finally:
        second.terminate()
        second.wait(20)
    assert code in (0, 76), "the first trainer was fenced, or the second trained the run to its end"
    trained = lineage_of(folder)
    assert len(trained) == len(set(trained)), "a group trained twice"
    books = report_of(folder)["books"]
    assert books["admitted"] == books["trained"] + books["retired"] + books["buried"] + books["open"]
