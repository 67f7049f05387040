"""Pools are data: shipped ones are changed, one's own are added, and what cannot be met is refused with its numbers."""

from __future__ import annotations

import pytest

from broker.errors import Misconfigured
from scheduler.pools import SHIPPED, Room, check_fleet, check_split, pool_named, pools_in_use, resolved
from scheduler.settings import PoolSection
from tests.unit.fleets import bounded

ROOM = Room(slots=8, why="there is room", instead="go elsewhere")


def refusal(call: object, *args: object, **kwargs: object) -> str:
    assert callable(call)
    with pytest.raises(Misconfigured) as caught:
        call(*args, **kwargs)
    assert len(str(caught.value).split("; ")) >= 3, "what happened; what the system does next; the mend"
    return str(caught.value)


def test_a_section_changes_what_it_names_and_leaves_the_rest() -> None:
    pool = resolved("rollout", PoolSection(min=2, move_cost=7))
    assert (pool.stream, pool.command, pool.min, pool.max, pool.move_cost) == (
        "prompts",
        "producers rollout",
        2,
        None,
        7,
    )


def test_one_trainer_leads_all_its_ranks_unless_a_person_says_otherwise() -> None:
    assert SHIPPED["train"].max == 1
    assert resolved("train", PoolSection(max=4)).max == 4


def test_judges_are_in_use_only_where_a_reward_needs_a_model() -> None:
    assert [pool.name for pool in pools_in_use({}, judged=False)] == ["rollout", "train"]
    assert [pool.name for pool in pools_in_use({}, judged=True)] == ["rollout", "judge", "train"]


def test_a_pool_of_ones_own_stands_where_its_stream_does() -> None:
    mine = PoolSection(stream="rollouts", command="mine verify")
    assert [pool.name for pool in pools_in_use({"verify": mine}, judged=False)] == ["rollout", "verify", "train"]


def test_a_pool_of_ones_own_without_stream_or_command_is_refused_with_the_nearest() -> None:
    assert 'did you mean "rollout"?' in refusal(resolved, "rolout", PoolSection(min=1))
    assert "shipped pools: rollout, judge, train" in refusal(resolved, "verify", PoolSection(stream="rollouts"))


def test_a_pool_must_take_from_a_work_stream_that_no_other_takes_from() -> None:
    assert 'stream = "weights" is no work stream' in refusal(
        resolved, "verify", PoolSection(stream="weights", command="mine verify")
    )
    twice = {"verify": PoolSection(stream="rollouts", command="mine verify")}
    assert "is what judge takes from" in refusal(pools_in_use, twice, judged=True)


def test_a_max_below_the_min_is_refused_with_both() -> None:
    assert "max = 1 is below min = 2" in refusal(resolved, "train", PoolSection(min=2))


def test_a_fleet_that_cannot_meet_the_minima_is_refused_with_both_numbers() -> None:
    pools = bounded(rollout=(3, None), train=(2, None))
    assert "5 slots (rollout 3 + train 2) of 4 slots" in refusal(check_fleet, pools, 4, ROOM)
    check_fleet(pools, 5, ROOM)


def test_more_slots_than_exist_are_refused_with_both_numbers() -> None:
    said = refusal(check_fleet, bounded(), 9, ROOM)
    assert said == "9 slots were asked for and there is room; nothing was started; ask for 8 or fewer; go elsewhere"
    check_fleet(bounded(), 8, ROOM)
    assert "0 slots" in refusal(check_fleet, bounded(), 0, ROOM)


def test_a_written_division_that_cannot_be_is_refused_with_what_can() -> None:
    pools = bounded(rollout=(1, None), train=(0, 1))
    assert "pools: rollout, judge, train" in refusal(check_split, pools, 4, {"rolout": 3})
    assert "train = 2; nothing was started; it may have 0 to 1 slots" in refusal(check_split, pools, 4, {"train": 2})
    assert "rollout = 0; nothing was started; it may have 1 to 4" in refusal(check_split, pools, 4, {"rollout": 0})
    assert "5 slots of 4 slots" in refusal(check_split, pools, 4, {"rollout": 4, "train": 1})
    check_split(pools, 4, {"rollout": 3, "train": 1})


def test_slots_that_no_pool_may_have_are_refused_with_both_numbers() -> None:
    pools = bounded(rollout=(0, 2), judge=(0, 1), train=(0, 1))
    assert "4 slots of 5 could ever work" in refusal(check_fleet, pools, 5, ROOM)


def test_an_unknown_pool_is_answered_with_those_there_are() -> None:
    assert pool_named("judge", bounded()).name == "judge"
    message = refusal(pool_named, "juge", bounded())
    assert 'did you mean "judge"?' in message
    assert "pools: rollout, judge, train" in message
