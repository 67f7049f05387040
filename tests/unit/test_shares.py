"""What a group took of its slot's time: shares add up to the time there was, and full speed is where it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.shares import Shares, speed
from broker.telemetry import Meter
from scheduler.simulation.shared_slot import SharedSlot
from scheduler.simulation.workload import Workload


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_groups_that_overlap_share_the_seconds_in_which_they_do() -> None:
    clock = Clock()
    shares = Shares(clock)
    with shares.taking() as long:
        clock.now = 2.0
        with shares.taking() as short:
            clock.now = 6.0
        clock.now = 7.0
    assert (long.seconds, short.seconds) == (2 + 4 / 2 + 1, 4 / 2)


def test_a_step_that_ends_many_groups_took_all_its_seconds() -> None:
    clock = Clock()
    shares = Shares(clock)
    with shares.taking(8) as step:
        clock.now = 4.0
    assert step.seconds == pytest.approx(4.0)


def test_seconds_at_part_of_the_speed_count_as_fewer_where_the_shape_is_known() -> None:
    clock = Clock()
    shares = Shares(clock, places=4, half_at=1)
    with shares.taking() as alone:
        clock.now = 4.0
    assert alone.seconds == pytest.approx(4 * speed(1, 4, 1)) == pytest.approx(4 * 5 / 8)


def test_a_group_that_is_interrupted_counts_neither_an_item_nor_its_seconds() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    with pytest.raises(KeyError), meter.working():
        clock.now = 100.0
        raise KeyError
    with meter.working() as share:
        clock.now = 102.0
    meter.finished(1, share.seconds)
    facts = meter.facts()
    assert (facts["items"], facts["spent_s"], facts["busy_s"]) == (1, 2.0, 102.0)


def test_the_meter_counts_what_the_simulator_counts() -> None:
    shape = Workload(name="", about="").shapes["rollout"]
    slot = SharedSlot("s")
    slot.enter("rollout", shape)
    ends = [slot.take(number, work_s, 0.0) for number, work_s in enumerate((1.0, 2.0, 3.0))][-1]
    clock = Clock()
    meter = Meter(clock=clock)
    meter.shares.places, meter.shares.half_at = shape.places, shape.half_at
    open_groups = [meter.working() for _ in range(3)]
    taken = [one.__enter__() for one in open_groups]
    while True:
        clock.now = ends
        group = slot.finish(ends)
        open_groups[group].__exit__(None, None, None)
        meter.finished(1, taken[group].seconds)
        if not slot.jobs:
            break
        ends = slot.next_done()
    assert meter.spent_s == pytest.approx(slot.spent_s) == pytest.approx(6.0)
    assert meter.busy_s == pytest.approx(slot.busy_s)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=40))
def test_shares_never_exceed_the_time_there_was(story: list[tuple[bool, float]]) -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    running, shares = [meter.working()], []
    shares.append(running[0].__enter__())
    for begins, seconds in story:
        clock.now += seconds
        if begins or not running:
            running.append(meter.working())
            shares.append(running[-1].__enter__())
        else:
            running.pop(0).__exit__(None, None, None)
    for one in running:
        one.__exit__(None, None, None)
    assert sum(share.seconds for share in shares) == pytest.approx(meter.busy_s)
