"""Every group trains exactly once, whatever dies: each role, the trainer in every gap, the server with and without its
data, everything at once. Each story is told twice: by script, and with a real model (`nightly`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker import embedded_server
from tests.faults.audit import assert_every_group_has_one_fate, assert_went_well, lineage_of, said_by_trainers
from tests.faults.dying_learner import GAPS, STEP_KEPT
from tests.faults.strikes import FORGOTTEN, LOST, STRIKES, Observed
from tests.faults.worlds import ROOT, SCRIPTED, WORLDS, Begin, World


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("strike", STRIKES)
def test_whatever_dies_the_run_goes_on_to_its_end(world: World, strike: str, begin: Begin) -> None:
    folder = begin(world)
    run = Observed(folder)
    run.pass_version(world.strike_at, world.within_s)
    run = STRIKES[strike](run)
    run.finish(world.within_s)
    assert_went_well(run, world)
    assert (LOST in said_by_trainers(folder)) == (strike in FORGOTTEN)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("gap", GAPS)
def test_a_trainer_killed_in_any_gap_loses_nothing_and_trains_nothing_twice(
    world: World, gap: str, begin: Begin, tmp_path: Path
) -> None:
    mark, at = tmp_path / "died", 10
    options = f'{{of = "{world.learner}", gap = "{gap}", at = {at}, mark = "{mark}"}}'
    folder = begin(world, 'train.learner="tests.faults.dying_learner:make"', f"train.options={options}")
    run = Observed(folder)
    run.finish(world.within_s)
    assert mark.exists(), "the trainer never came to this gap"
    assert_went_well(run, world)
    first, second = (lineage_of(folder)[version - 1].epoch for version in (1, at))
    assert (second == first) == (gap in STEP_KEPT)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_every_bound_makes_progress_and_holds(world: World, staleness: int, begin: Begin) -> None:
    stragglers = 'reward.parts=[{name = "exact_match"}, {name = "tests.faults.lingering:lingering", weight = 0}]'
    run = Observed(begin(world, f"train.staleness={staleness}", stragglers, "reward.processes=4"))
    run.finish(world.within_s)
    assert_went_well(run, world, staleness=staleness)
    assert "came too late" not in said_by_trainers(run.folder), "a straggler was overtaken for too long"


def test_groups_without_signal_leave_with_their_reason_while_the_reward_consumer_dies(begin: Begin) -> None:
    last_digit_even = 'reward.parts=[{name = "format", options = {pattern = ".*[02468] <.s>"}}]'
    folder = begin(SCRIPTED, "algorithm.dynamic_sampling=true", "rollout.group_size=2", last_digit_even)
    run = Observed(folder)
    run.pass_version(SCRIPTED.strike_at, SCRIPTED.within_s)
    run = STRIKES["reward-0"](run)
    run.finish(SCRIPTED.within_s)
    assert_went_well(run, SCRIPTED)
    assert set(assert_every_group_has_one_fate(folder).retired.values()) == {"no_signal"}


def test_a_second_trainer_fences_the_first_and_harms_nothing(begin: Begin) -> None:
    folder = begin(SCRIPTED, "train.options={pace_s=0.1}")
    run = Observed(folder)
    run.pass_version(5, SCRIPTED.within_s)
    env = {**os.environ, "TIDEMILL_BROKER_URL": embedded_server.address(folder / "redis"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "consumers", "trainer", "--run", str(folder), "--name", "trainer-9"]
    second = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        code = run.end(within_s=60)
    finally:
        second.terminate()
        second.wait(20)
    assert code in (0, 76), "the first trainer was fenced, or the second trained the run to its end"
    assert_every_group_has_one_fate(folder)
