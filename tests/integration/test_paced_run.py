"""The paced fleet: engine, judge and trainer that sleep, on real slots under the real scheduler, and without slots.

The run is `tidemill run paced` at four times the pace.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.archive import closed_groups
from broker.messages import Group
from deploy.audit import audit
from deploy.inspection import Records, recorded_decisions
from deploy.records import by_version, records
from deploy.run_check import load_run, saved_run
from deploy.run_folder import new_run_folder
from deploy.server import reachable
from tests.integration.test_launcher import Launched, assert_balanced, lay_model, left_over, report_of, until

CHANGE = 16
"""Version from which on there is more work."""
VOTES = '[{name = "scripted_judge", options = {votes = 3, pace_s = 0.0625, accuracy = 0.9%s}}]'
QUICK = [
    "rollout.options.token_pace_s=0.0025",
    "train.options={token_pace_s=0.0005}",
    "scheduler.every_s=0.5",
    "scheduler.dwell_s=2",
    "scheduler.horizon_s=15",
    "scheduler.memory_s=5",
    "scheduler.drain_s=5",
]
WITHIN_S = 20
"""After the changed version the first slot is on its way."""
CHANGES = {
    "rollout": [f"rollout.options.later={{version={CHANGE}, length=[30, 120]}}", "reward.parts=" + VOTES % ""],
    "judge": [
        "rollout.options={accuracy=0.5, length=[10, 40], token_pace_s=0.0025}",
        "reward.parts=" + VOTES % f", later = {{version = {CHANGE}, votes = 9}}",
    ],
}
"""Pool that must grow → what changes."""


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    def make(*overrides: str) -> Path:
        folder = new_run_folder(load_run("paced", [*QUICK, *overrides]), tmp_path / "runs", datetime.now(UTC))
        lay_model(folder / "model")
        return folder.resolve()

    return make


def decisions(folder: Path) -> list[dict[str, Any]]:
    with reachable(folder, saved_run(folder).broker) as url:
        return recorded_decisions(Records(url, folder.name), 10_000)


def mean_slots(found: list[dict[str, Any]], pool: str, begin: float, end: float) -> float:
    """That the pool had, by the decisions between two moments."""
    split = [one["split"][pool] for one in found if begin <= one["at"] < end]
    assert split, f"no decision between {begin} and {end}"
    return sum(split) / len(split)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("grows", ["rollout", pytest.param("judge", marks=pytest.mark.nightly)])
def test_slots_follow_the_work_when_it_triples_mid_way(made: Callable[..., Path], grows: str) -> None:
    folder = made("scheduler.slots=6", f"run.steps={2 * CHANGE}", *CHANGES[grows])
    launched = Launched(folder)
    assert launched.end(within_s=150) == 0, launched.text()
    assert left_over(folder) == []
    assert report_of(folder)["books"]["trained"] == 8 * 2 * CHANGE
    assert_balanced(folder)
    at = {version: step["at"] for version, step in by_version(records(folder / "steps.jsonl")).items()}
    found = decisions(folder)
    moves = [one["at"] for one in found for move in one["moves"] if move["target"] == grows and one["at"] > at[CHANGE]]
    assert moves, "no slot was moved"
    assert moves[0] - at[CHANGE] < WITHIN_S
    before = mean_slots(found, grows, at[CHANGE // 2], at[CHANGE])
    after = mean_slots(found, grows, moves[0] + 1, at[2 * CHANGE])
    assert after > before + 0.3, f"{grows} had {before:.2f} slots before the change and {after:.2f} after it"


def test_a_paced_run_goes_to_its_end_with_judges_and_without_slots(made: Callable[..., Path]) -> None:
    folder = made("run.steps=4", "rollout.options.later.version=2", "reward.parts=" + VOTES % "")
    launched = Launched(folder)
    assert launched.end(within_s=60) == 0, launched.text()
    assert left_over(folder) == []
    report = report_of(folder)
    assert report["books"]["trained"] == 8 * 4
    assert_balanced(folder)
    assert set(report["busy_share"]) == {"trainer", "rollout", "judge", "feeder"}
    assert {path.stem for path in (folder / "logs").glob("judge-*.jsonl")} == {"judge-0", "judge-1"}
    lengths = {
        version: [len(each.rollouts.logprobs) for each in groups if each.rollouts]
        for version, groups in by_first_version(folder).items()
    }
    assert max(max(found) for version, found in lengths.items() if version < 2) <= 4 * 40
    assert min(min(found) for version, found in lengths.items() if version >= 2) >= 4 * 30


def by_first_version(folder: Path) -> dict[int, list[Group]]:
    """Closed groups by the version their sampling began with."""
    found: dict[int, list[Group]] = {}
    for one in closed_groups(folder / "groups"):
        assert one.group.rollouts is not None
        found.setdefault(one.group.rollouts.oldest_version, []).append(one.group)
    return found


def test_long_groups_and_votes_are_given_back_by_the_deadline_of_a_drain(made: Callable[..., Path]) -> None:
    slow = "rollout.options={accuracy=0.5, length=[10, 40], pace_s=600}"
    folder = made(slow, "broker.drain_s=2", "broker.lease_s=1")
    launched = Launched(folder)
    until(lambda: launched.snapshot()["processes"].get("rollout-0", {}).get("busy"), 30)
    launched.interrupt()
    assert launched.end(within_s=15) == 130, launched.text()
    assert left_over(folder) == []
    with reachable(folder, saved_run(folder).broker) as url:
        assert all(check.holds for check in audit(Records(url, folder.name), folder / "store"))
    assert "adopted from a dead reader" not in (folder / "logs" / "rollout-0.jsonl").read_text()


def test_a_judged_run_has_no_cpu_worker_for_its_rewards(made: Callable[..., Path]) -> None:
    folder = made()
    refused = subprocess.run(
        [sys.executable, "-m", "consumers", "reward", "--run", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert "scripted_judge needs a slot" in refused.stderr
    assert "python -m consumers judge" in refused.stderr


def test_the_runs_that_operations_and_the_run_file_name_are_sound() -> None:
    root = Path(__file__).parents[2]
    texts = [(root / "docs" / "operations.md").read_text(), (root / "deploy" / "runs" / "paced.toml").read_text()]
    lines = [
        line.lstrip("# ").partition("  #")[0].partition("   ")[0].strip()
        for text in texts
        for line in text.splitlines()
        if line.lstrip("# ").startswith("tidemill run paced")
    ]
    assert len(lines) >= 5
    for line in lines:
        words = [sys.executable, "-m", "deploy.cli", *shlex.split(line)[1:], "--check"]
        checked = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, (line, checked.stderr)
