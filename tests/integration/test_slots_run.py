"""`tidemill run` on slots: one command starts workers and scheduler, a person can look and pin, the books balance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import tidemill
from tests.integration.test_launcher import Launched, ask, left_over, made, report_of, until

__all__ = ["made"]

BRISK = ["scheduler.every_s=0.5", "scheduler.dwell_s=1", "scheduler.drain_s=5", "scheduler.switching=0.5"]


def assert_ended_well(folder: Path) -> None:
    """The launcher audits the books itself: they would have cost it its exit code."""
    report = report_of(folder)
    assert report["books"]["trained"] == 8 * report["steps"]
    assert left_over(folder) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("slots", [1, 2])
def test_a_run_on_slots_goes_to_its_end(made: Callable[..., Path], slots: int) -> None:
    folder = made(f"scheduler.slots={slots}", *BRISK, "run.steps=6", "prompts.eval.size=0")
    launched = Launched(folder)
    assert launched.end(within_s=150) == 0, launched.text()
    assert_ended_well(folder)
    for words in (("scheduler", folder.name), ("slots", "env", "--run", folder.name)):
        refused = tidemill(*words, runs=folder.parent)
        assert refused.returncode == 2
        assert "ended with the run; nothing to connect to; `tidemill resume` starts it" in " ".join(
            refused.stderr.split()
        )
    told = [row["decision"] for row in ask(folder, "inspect", "decisions", "--json")]
    assert "only train opens a closed run" in " ".join(told)


@pytest.mark.timeout(600)
def test_a_person_sees_slots_and_pins_them_and_ctrl_c_leaves_nothing(made: Callable[..., Path]) -> None:
    folder = made("scheduler.slots=2", *BRISK, "train.options={pace_s=0.1}", "run.steps=100000", "broker.drain_s=10")
    launched = Launched(folder)
    launched.reach(2, within_s=60)
    rows = until(
        lambda: (rows := ask(folder, "slots", "--json")) and all(row["state"] == "serving" for row in rows) and rows, 30
    )
    assert [row["slot"] for row in rows] == ["slot-0", "slot-1"]
    assert {row["pool"] for row in rows} == {"train", "rollout"}
    pinned = tidemill("slots", "move", "slot-1", "rollout", runs=folder.parent)
    assert (pinned.returncode, "pinned to rollout" in pinned.stdout) == (0, True), pinned.stderr
    assert ask(folder, "slots", "--json")[1]["wanted"] == "rollout (pinned)"
    free = tidemill("slots", "unpin", "slot-1", runs=folder.parent)
    assert "no longer pinned" in free.stdout
    for words, told in (
        (("move", "slot-1", "rolout"), 'did you mean "rollout"'),
        (("move", "slot-7", "train"), 'did you mean "slot-'),
        (("move", "slot-1"), "say list, move SLOT POOL"),
        (("lend", "slot-1"), "say list, move SLOT POOL"),
    ):
        refused = tidemill("slots", *words, runs=folder.parent)
        assert refused.returncode == 2
        assert told in " ".join(refused.stderr.split()), refused.stderr
    launched.interrupt()
    assert launched.end(within_s=60) == 130, launched.text()
    until(lambda: left_over(folder) == [], 10)


def test_slots_that_cannot_serve_the_pools_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for arguments, told in (
        (("--slots", "0"), "0 slots cannot run anything"),
        (("--slots", "1", "pools.rollout={min=2}"), "2 slots (rollout 2) of 1 slot"),
    ):
        refused = tidemill("run", "addition", *arguments, runs=tmp_path / "runs")
        assert refused.returncode == 2
        assert told in " ".join(refused.stderr.split()), refused.stderr
        assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
