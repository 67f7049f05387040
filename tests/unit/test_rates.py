"""Service rates come from busy seconds, whatever the slot waited."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest

from scheduler.lifecycle import State
from scheduler.observation import Service, Slot
from scheduler.rates import STEEPEST, Rates

SLOT = Slot(id="a", pool="rollout", state=State.SERVING)


def test_waiting_is_no_work() -> None:
    rates = Rates()
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, busy_s=6.0, items=3)], 1000)
    assert rates.service()["rollout"].item_s == pytest.approx(2.0)


def test_a_pool_that_has_finished_nothing_is_unknown() -> None:
    rates = Rates()
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, busy_s=6.0)], 6)
    assert rates.service() == {}


def test_a_step_that_ends_many_groups_at_once_is_counted_with_all_the_seconds_it_took() -> None:
    rates = Rates()
    for second in range(10):
        rates.observe([replace(SLOT, busy_s=float(second))], second)
    rates.observe([replace(SLOT, busy_s=10.0, items=20)], 10)
    rates.observe([replace(SLOT, busy_s=13.0, items=20)], 13)
    service = rates.service()["rollout"]
    assert service.item_s == pytest.approx(0.5)
    assert service.begun_s == pytest.approx(3.0)


def test_what_is_newer_weighs_more() -> None:
    rates = Rates(memory_s=100)
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, busy_s=100.0, items=100)], 100)
    rates.observe([replace(SLOT, busy_s=400.0, items=200)], 400)
    assert 2.8 < (rates.means["rollout"].item_s or 0) < 3.0


def test_costs_that_grow_are_led_on_along_their_trend() -> None:
    rates, busy, items = Rates(memory_s=100), 0.0, 0
    for second in range(2000):
        busy, items = busy + 1 + second / 1000, items + 1
        rates.observe([replace(SLOT, busy_s=busy, items=items)], float(second))
    now = 1 + 1999 / 1000
    assert (rates.means["rollout"].item_s or 0) < 0.98 * now
    assert rates.service()["rollout"].item_s == pytest.approx(now, rel=0.01)


def test_a_leap_is_not_taken_for_a_trend() -> None:
    rates = Rates(memory_s=100)
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, busy_s=100.0, items=100)], 100)
    rates.observe([replace(SLOT, busy_s=5100.0, items=200)], 110)
    assert rates.service()["rollout"].item_s <= STEEPEST * (rates.means["rollout"].item_s or 0)


def test_a_change_within_the_noise_is_hardly_followed_and_one_beyond_it_is() -> None:
    chance = random.Random(7)
    rates, busy, seen_s = Rates(memory_s=100), 0.0, list[float]()
    for second in range(0, 6000, 5):
        true_s = 2.0 if second < 5000 else 4.0
        busy += sum(chance.expovariate(1 / true_s) for _ in range(5))
        rates.observe([replace(SLOT, busy_s=busy, items=second)], second)
        if second > 1500:
            seen_s.append(rates.service()["rollout"].item_s)
    steady, short_error = seen_s[:650], rates.means["rollout"].error_s
    assert statistics.stdev(steady) < 0.06, "the short mean alone errs by 2/√200 = 0.14"
    assert 0.1 < short_error < 0.6
    assert seen_s[-1] == pytest.approx(4.0, rel=0.15)


def test_a_leap_of_a_pool_that_finishes_in_few_large_steps_is_believed_by_the_third() -> None:
    """It counts as noise once, where the costs differ, and not as long as the mean is behind."""
    rates, busy = Rates(memory_s=120), 0.0
    for step in range(13):
        busy += 40 * (1.0 if step % 2 else 1.02) * (1 if step < 10 else 3)
        rates.observe([replace(SLOT, busy_s=busy, items=40 * (step + 1))], 60.0 * step)
    assert rates.service()["rollout"].item_s > 2.2


def test_a_group_counts_with_what_it_took_itself_not_with_all_that_is_in_hand() -> None:
    rates = Rates()
    rates.observe([replace(SLOT, spent_s=0.0)], 0)
    rates.observe([replace(SLOT, busy_s=30.0, spent_s=4.0, items=2)], 30)
    assert rates.service()["rollout"].item_s == pytest.approx(2.0)


def test_a_half_empty_slot_works_at_part_of_its_speed() -> None:
    shape = Service(item_s=0.0, places=4, half_at=1.0)
    assert shape.speed(0) == 0
    assert shape.speed(1) == pytest.approx(0.625), "1/2 of the limit, of which four in hand reach 4/5"
    assert shape.speed(4) == shape.speed(9) == pytest.approx(1)


def test_a_slot_that_changed_pools_in_between_says_nothing() -> None:
    rates = Rates()
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, pool="judge", busy_s=50.0, items=1)], 60)
    assert rates.service() == {}


def test_the_price_of_a_move_is_a_mean_over_the_last_ones() -> None:
    rates = Rates({"rollout": Service(item_s=0.0, move_s=30.0)})
    rates.observe([SLOT], 0)
    rates.observe([replace(SLOT, busy_s=1.0, items=1)], 1)
    assert rates.service()["rollout"].move_s == 30.0
    for _ in range(50):
        rates.note_move("rollout", 12.0)
    assert rates.service()["rollout"].move_s == pytest.approx(12.0, abs=0.1)


def test_a_pool_stands_still_once_none_of_its_slots_has_done_anything_for_a_while() -> None:
    rates = Rates()
    busy, other = replace(SLOT, busy_s=5.0), replace(SLOT, id="b")
    rates.observe([SLOT, other], 0.0)
    rates.observe([busy, other], 5.0)
    assert not rates.still(5.0)
    for now in (10.0, 15.0, 20.0):
        rates.observe([busy, other], now)
    assert rates.still(20.0) == {"rollout"}
    rates.observe([replace(busy, busy_s=6.0), other], 25.0)
    assert not rates.still(25.0)


def test_a_pool_whose_slots_are_all_on_their_way_does_not_stand_still() -> None:
    rates = Rates()
    for now in (0.0, 10.0, 20.0, 30.0):
        rates.observe([replace(SLOT, state=State.MOVING)], now)
    assert not rates.still(30.0)
