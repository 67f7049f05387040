"""Runs with more than one producer and one trainer in their pools: a judge in its turn, a trainer of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.policies import tiny_llama
from deploy.records import records
from tests.faults.audit import assert_went_well
from tests.faults.slot_runs import story_of
from tests.faults.slot_worlds import BRISK
from tests.faults.strikes import Observed
from tests.faults.worlds import new_run
from tests.integration.test_launcher import Launched, assert_balanced, left_over, report_of
from tests.integration.test_paced_run import VOTES, made
from tests.integration.test_ranks import SPREAD

__all__ = ["made"]

STEPS = 3
TURNS = replace(SPREAD, overrides=(*SPREAD.overrides, *BRISK, "run.steps=6", "scheduler.slots=1"), steps=6)


def moved_to(folder: Path) -> list[str]:
    """Pools that the scheduler gave a slot to, in order."""
    return [move["target"] for one in story_of(folder) for move in one["moves"]]


@pytest.mark.timeout(600)
def test_one_slot_rolls_out_judges_and_trains_in_turn(made: Callable[..., Path]) -> None:
    shared = [f"pools.{pool}.min=0" for pool in ("rollout", "judge", "train")]
    quick = ("rollout.options.token_pace_s=0.0005", "reward.parts=" + VOTES.replace("0.0625", "0.01") % "")
    folder = made("scheduler.slots=1", *BRISK, f"run.steps={STEPS}", *quick, *shared)
    launched = Launched(folder)
    assert launched.end(within_s=120) == 0, launched.text()
    assert left_over(folder) == []
    assert report_of(folder)["books"]["trained"] == 8 * STEPS
    assert_balanced(folder)
    assert set(moved_to(folder)) == {"rollout", "judge", "train"}


@pytest.mark.nightly
@pytest.mark.timeout(1400)
def test_a_trainer_of_two_ranks_shares_its_slot_with_the_producer(tmp_path: Path) -> None:
    folder = new_run(TURNS, tmp_path / "runs")
    tiny_llama.build(folder / "model", dtype="float32", seed=0)
    run = Observed(folder)
    run.finish(TURNS.within_s)
    assert_went_well(run, TURNS)
    assert moved_to(folder).count("train") >= 2, "both ranks left and came back"
    steps = records(folder / "steps.jsonl")
    assert sum(step["grad_norm"] > 0 for step in steps) > TURNS.steps / 2
    assert {path.stem for path in (folder / "logs").glob("rank-*.err")} == {"rank-1"}
