"""The life of a slot: every event in every state has its answer, and no answer surprises."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.lifecycle import LIFECYCLE, WORKING, Event, State, after, settled


def test_the_table_is_total() -> None:
    assert set(LIFECYCLE) == set(Event)
    assert all(set(row) == set(State) for row in LIFECYCLE.values())


def test_a_working_slot_is_drained_before_it_moves() -> None:
    assert [after(State.SERVING, event) for event in (Event.ASSIGNED, Event.UNASSIGNED)] == [State.DRAINING] * 2
    story = (Event.ASSIGNED, Event.READY, Event.ASSIGNED, Event.LEFT, Event.READY)
    states = list(itertools.accumulate(story, after, initial=State.VACANT))
    assert states == [State.VACANT, State.MOVING, State.SERVING, State.DRAINING, State.MOVING, State.SERVING]


def test_a_deadline_ends_a_drain_and_nothing_else() -> None:
    assert [state for state in State if after(state, Event.OVERRAN) is not state] == [State.DRAINING]


@pytest.mark.parametrize("state", State)
def test_a_lost_worker_is_dead_and_must_be_heard_before_it_is_given_anything(state: State) -> None:
    dead = after(state, Event.LOST)
    assert dead is State.DEAD
    assert {after(dead, event) for event in Event if event is not Event.HEARD} == {State.DEAD}
    assert after(dead, Event.HEARD) is State.VACANT


def test_a_parked_slot_leaves_only_by_a_persons_word_or_its_workers_death() -> None:
    assert {event for event in Event if after(State.PARKED, event) is not State.PARKED} == {
        Event.ASSIGNED,
        Event.UNASSIGNED,
        Event.LOST,
    }


def test_a_slot_that_drained_for_nobody_is_vacant() -> None:
    assert settled(after(State.DRAINING, Event.LEFT), wanted="") is State.VACANT
    assert settled(after(State.DRAINING, Event.LEFT), wanted="judge") is State.MOVING


@given(st.lists(st.sampled_from(Event)))
def test_only_a_ready_controller_serves(events: list[Event]) -> None:
    states = list(itertools.accumulate(events, after, initial=State.VACANT))
    for before, event, state in zip(states, events, states[1:], strict=False):
        if state is State.SERVING and before is not State.SERVING:
            assert (before, event) == (State.MOVING, Event.READY)
        if state is State.DRAINING and before is not State.DRAINING:
            assert before is State.SERVING
        if state in WORKING and before not in WORKING:
            assert event is Event.ASSIGNED
