"""A real model trains on slots to its end: on two, and on one that is trainer and producer in turn."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.faults.slot_runs import OnSlots, story_of
from tests.faults.slot_witness import Witness
from tests.faults.slot_worlds import DRAIN_S, NIGHTLY, WITH_A_MODEL, Launch, assert_all_is_well
from tests.integration.test_launcher import said

FEW = replace(WITH_A_MODEL, overrides=(*WITH_A_MODEL.overrides, "run.steps=12"), steps=12)


@pytest.mark.timeout(400)
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
    """By moves that the scheduler ordered, one way and back, as often as the bound on open groups makes it."""
    moves = [move["target"] for one in story_of(run.folder) for move in one["moves"]]
    assert set(moves) == {"rollout", "train"}
    assert all(one != other for one, other in pairwise(moves)), moves
    rounds = FEW.steps / 4
    assert len(moves) <= 2 * rounds + 2, f"{moves}: more than one move there and back for each (η+1)·B groups"
