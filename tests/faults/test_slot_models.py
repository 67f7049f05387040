"""A real model trains on slots to its end: on two, and on one that is trainer and producer in turn."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.faults.slot_runs import OnSlots, story_of
from tests.faults.slot_witness import Witness
from tests.faults.slot_worlds import DRAIN_S, NIGHTLY, STALENESS, WITH_A_MODEL, Launch, assert_all_is_well
from tests.integration.test_launcher import said

FEW = replace(WITH_A_MODEL, overrides=(*WITH_A_MODEL.overrides, "run.steps=12"), steps=12)


@pytest.mark.timeout(800)
@pytest.mark.parametrize("slots", [2, pytest.param(1, marks=NIGHTLY)])
def test_a_real_model_trains_on_slots_to_its_end(slots: int, launch: Launch) -> None:
    run = launch(FEW, slots)
    with Witness(run, slots, DRAIN_S) as witness:
        run.finish(FEW.within_s)
    assert_all_is_well(run, FEW, witness)
    said(run.folder, "audit", run.folder.name)  # it would not answer 0 for books that are wrong
    if slots == 1:
        assert_it_was_shared(run)


def assert_it_was_shared(run: OnSlots) -> None:
    """By moves that the scheduler ordered, one way and back: at most three for each (η+1)·B groups, and those for the
    last version's evaluation."""
    moves = [move["target"] for one in story_of(run.folder) for move in one["moves"]]
    assert set(moves) == {"rollout", "train"}
    assert all(one != other for one, other in pairwise(moves)), moves
    rounds = FEW.steps / (STALENESS[FEW.learner] + 1)
    assert len(moves) <= 3 * rounds + 2, moves
