"""A slot's counters over all the lives of its controllers."""

from __future__ import annotations

from scheduler.tally import Tally

BEAT = {"busy_s": 8.0, "spent_s": 5.0, "items": 4, "held": 2, "places": 6, "half_at": 0.5}


def test_the_next_life_is_added_to_those_that_ended() -> None:
    tally = Tally()
    tally.heard("rollout", BEAT)
    tally.over()
    tally.heard("rollout", {"busy_s": 1.0, "spent_s": 0.5, "items": 1, "held": 1, "places": 7})
    assert tally.held == 1
    assert tally.work() == {"rollout": {"busy_s": 9.0, "spent_s": 5.5, "items": 5, "places": 7.0, "half_at": 0.0}}


def test_what_was_done_for_another_pool_stays_its_own_and_so_does_the_shape() -> None:
    tally = Tally()
    tally.heard("rollout", BEAT)
    tally.over()
    tally.heard("train", {"busy_s": 3.0, "spent_s": 3.0, "items": 32})
    work = tally.work()
    assert (work["rollout"]["spent_s"], work["rollout"]["places"]) == (5.0, 6.0)
    assert (work["train"]["spent_s"], work["train"]["places"], work["train"]["items"]) == (3.0, 1.0, 32)


def test_a_group_in_hand_at_a_death_is_no_item_and_its_time_is_only_busy() -> None:
    tally = Tally()
    tally.heard("rollout", {"busy_s": 60.0, "spent_s": 0.0, "items": 0, "held": 1})
    tally.over()
    tally.heard("rollout", {"busy_s": 2.0, "spent_s": 2.0, "items": 1})
    work = tally.work()["rollout"]
    assert (work["spent_s"] / work["items"], work["busy_s"]) == (2.0, 62.0)


def test_all_busy_seconds_count_for_a_controller_that_does_not_split_them() -> None:
    tally = Tally()
    tally.heard("own", {"busy_s": 2.0, "items": 1})
    assert tally.work()["own"]["spent_s"] == 2.0
