"""Every group trains exactly once while slots move, whatever dies in the middle of a move.

Each story is told by script (some by day, all at night) and with a real model (at night, but for the fastest).
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace

import pytest

from tests.faults.audit import (
    assert_bound_held,
    assert_every_group_has_one_fate,
    assert_versions_went_forward,
    assert_went_well,
    said_by_trainers,
)
from tests.faults.slot_runs import story_of
from tests.faults.slot_strikes import BY_DAY, SLOT_STRIKES
from tests.faults.slot_witness import Witness, broken_rules
from tests.faults.slot_worlds import BY_SCRIPT, DRAIN_S, DWELL_S, ON_SLOTS, Launch, assert_all_is_well
from tests.faults.worlds import World
from tests.integration.test_launcher import left_over


@pytest.mark.parametrize("world", ON_SLOTS)
@pytest.mark.parametrize(
    "strike", [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in SLOT_STRIKES]
)
def test_whatever_dies_in_the_middle_of_a_move_the_run_goes_on_to_its_end(
    world: World, strike: str, launch: Launch
) -> None:
    run = launch(world, 2)
    with Witness(run, 2, DRAIN_S) as witness:
        run.pass_version(world.strike_at, world.within_s)
        run = witness.run = SLOT_STRIKES[strike](run)
        run.finish(world.within_s)
    assert_all_is_well(run, world, witness)


@pytest.mark.timeout(600)
def test_a_trainer_that_moves_hands_over_at_a_version_boundary_and_nothing_is_trained_again(launch: Launch) -> None:
    run = launch(BY_SCRIPT, 2, "train.options={pace_s=0.3}", "train.checkpoint_every=1000")
    trainer, producer = "slot-0", "slot-1"
    for _ in range(4):
        run.pass_version(max(run.look(), 0) + 1, 60)
        for slot, pool in ((trainer, "rollout"), (producer, "train")):
            run.order(slot, pool, "pin")
        trainer, producer = producer, trainer
        run.reported(trainer, pool="train", state="serving")
    run.finish(BY_SCRIPT.within_s)
    assert_went_well(run, BY_SCRIPT, staleness=1)
    said = [json.loads(line) for line in said_by_trainers(run.folder).splitlines()]
    assert [line for line in said if line["event"] == "replaying"] == []
    opened = [
        line["version"] for line in sorted(said, key=lambda line: line["timestamp"]) if line["event"] == "run open"
    ]
    assert len(opened) == 5 and opened == sorted(opened) and opened[-1] >= 4, opened


@pytest.mark.timeout(600)
def test_nothing_is_lost_by_any_sequence_of_moves(launch: Launch) -> None:
    walk(launch, moves=12, seed=random.randrange(1 << 30))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(5))
def test_nothing_is_lost_by_any_long_sequence_of_moves(launch: Launch, turn: int) -> None:
    walk(launch, moves=60, seed=random.randrange(1 << 30))


def walk(launch: Launch, moves: int, seed: int) -> None:
    """A person sends slots anywhere, two trainers at once and none at all included, while a scheduler has its own will;
    left alone, the scheduler brings the run on, and Ctrl-C ends it."""
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    run = launch(BY_SCRIPT, 3, "run.steps=100000", "pools.rollout={min=1}")
    with Witness(run, 3, DRAIN_S) as witness:
        run.pass_version(1, 60)
        for _ in range(moves):
            slot, pool = dice.choice(witness.slots), dice.choice(["rollout", "train", ""])
            run.order(slot, pool, dice.choice(["pin", "unpin"]) if pool else "pin")
            time.sleep(1.5 * dice.random())
            run.look()
        for slot in witness.slots:
            run.order(slot, "rollout", "unpin")
        reached = run.look()
        run.pass_version(reached + 5, 90)
        run.interrupt()
        assert run.end(60) == 130, run.text()
        run.look()
    assert witness.found == [], witness.found
    assert broken_rules(story_of(run.folder), DWELL_S, {"rollout": 1}) == []
    assert_every_group_has_one_fate(run.folder)
    world = replace(BY_SCRIPT, steps=run.seen[-1])
    assert_versions_went_forward(run.folder, world, run.seen)
    assert_bound_held(run.folder, 1)
    assert left_over(run.folder) == []
