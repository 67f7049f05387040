"""Where slots should be: every placement answers every observation, and `pressure` answers it well."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Misconfigured
from scheduler.forecast import fluid_split, stages, whole_split
from scheduler.observation import Observation, Slot
from scheduler.placements import PLACEMENTS, create
from scheduler.placements.pressure import Pressure
from scheduler.settings import SchedulerSection
from tests.unit.fleets import POOLS, bounded, fleet, seen, services

counts = st.integers(0, 6)
backlogs = st.integers(0, 200)


@pytest.mark.parametrize("name", PLACEMENTS)
@given(rollout=counts, judge=counts, train=counts, vacant=counts, queues=st.tuples(backlogs, backlogs, backlogs))
def test_every_placement_answers_every_observation_alike_twice(
    name: str, rollout: int, judge: int, train: int, vacant: int, queues: tuple[int, int, int]
) -> None:
    slots = (
        *fleet({"rollout": rollout, "judge": judge, "train": train}),
        *(Slot(id=f"v{number}") for number in range(vacant)),
    )
    observation = seen(slots, prompts=queues[0], rollouts=queues[1], scored=queues[2])
    targets = create(SchedulerSection(placement=name)).targets(observation, POOLS)
    assert targets == create(SchedulerSection(placement=name)).targets(observation, POOLS)
    assert all(count >= 0 for count in targets.split.values())
    assert sum(targets.split.values()) <= len(slots)
    assert targets.reason


def test_an_unknown_placement_is_refused_with_those_there_are() -> None:
    with pytest.raises(Misconfigured, match=r'did you mean "pressure"\? known: pressure, proportional, fixed'):
        create(SchedulerSection(placement="presure"))


def test_the_fluid_split_gives_no_pool_more_than_it_can_use() -> None:
    line = stages(seen(fleet({"rollout": 64})), POOLS)
    split = fluid_split(line, 64)
    assert sum(split.values()) == pytest.approx(64)
    assert split["rollout"] / split["judge"] == pytest.approx(6.0 / 1.2)


def test_groups_that_are_dropped_after_scoring_must_be_made_more_often() -> None:
    line = stages(seen(fleet({"rollout": 64}), surviving=0.25), POOLS)
    split = fluid_split(line, 64)
    assert split["rollout"] / split["train"] == pytest.approx(4 * 6.0 / 1.3)


@given(
    weights=st.tuples(*[st.floats(0.1, 10)] * 3),
    slots=st.integers(3, 12),
    least=st.tuples(*[st.integers(0, 1)] * 3),
)
def test_the_whole_split_is_the_best_there_is(weights: tuple[float, ...], slots: int, least: tuple[int, ...]) -> None:
    names = [pool.name for pool in POOLS]
    pools = bounded(**{name: (low, None) for name, low in zip(names, least, strict=True)})
    split = whole_split(dict(zip(names, weights, strict=True)), pools, slots)
    assert sum(split.values()) == slots

    def slowest(division: tuple[int, ...]) -> float:
        return min(count / weight for count, weight in zip(division, weights, strict=True))

    best = max(
        slowest(division)
        for division in itertools.product(range(slots + 1), repeat=3)
        if sum(division) == slots and all(c >= low for c, low in zip(division, least, strict=True))
    )
    assert slowest(tuple(split.values())) == pytest.approx(best)


def test_slots_leave_a_pool_whose_stream_runs_dry_for_the_one_where_work_waits() -> None:
    slots = fleet({"rollout": 13, "judge": 2, "train": 1})
    targets = Pressure().targets(seen(slots, prompts=0, rollouts=0, scored=192), POOLS)
    assert targets.split["train"] > 1
    assert targets.split["rollout"] < 13
    assert targets.numbers["gain_s"] > targets.numbers["margin_s"]


def test_slots_stay_while_all_have_work() -> None:
    slots = fleet({"rollout": 11, "judge": 2, "train": 3})
    targets = Pressure().targets(seen(slots, prompts=72, rollouts=24, scored=96), POOLS)
    assert targets.split == {"rollout": 11, "judge": 2, "train": 3}
    assert "every slot has work" in targets.reason


def test_where_whole_slots_come_close_to_the_fluid_split_passing_idleness_moves_none() -> None:
    slots = fleet({"rollout": 45, "judge": 9, "train": 10})
    targets = Pressure().targets(seen(slots, prompts=20, rollouts=0, scored=748), POOLS)
    assert targets.split == {"rollout": 45, "judge": 9, "train": 10}


def test_a_pool_just_in_step_with_the_one_before_it_is_given_its_share() -> None:
    """37 rollout slots keep 7.4 judges at work: both pools are too small, though one judge has little to do."""
    slots = fleet({"rollout": 37, "judge": 8, "train": 19})
    targets = Pressure().targets(seen(slots, prompts=380, rollouts=60, scored=300), POOLS)
    assert targets.split == {"rollout": 45, "judge": 9, "train": 10}


def test_a_large_gain_is_needed_where_much_work_waits_and_a_small_one_where_little_does() -> None:
    slots = fleet({"rollout": 10, "judge": 2, "train": 4})
    margins = [
        Pressure().targets(seen(slots, prompts=0, scored=scored), POOLS).numbers["margin_s"] for scored in (48, 96, 192)
    ]
    assert margins == sorted(margins)
    assert margins[2] < 4 * margins[0], "it grows more slowly than the work that waits"


def test_a_pool_that_has_work_and_never_finished_anything_is_left_to_show_how_fast_it_is() -> None:
    known = {pool: service for pool, service in services().items() if pool != "train"}
    slots = fleet({"rollout": 4, "judge": 8, "train": 4})
    targets = Pressure().targets(seen(slots, prompts=192, scored=192, service=known), POOLS)
    assert targets.split["train"] == 4
    assert targets.split["rollout"] > 4


def test_a_train_pool_of_many_slots_keeps_its_share_until_its_first_step_is_known() -> None:
    """Slots that come while a step goes on could take no part in it."""
    known = {pool: service for pool, service in services().items() if pool != "train"}
    slots = fleet({"rollout": 22, "judge": 21, "train": 21})
    targets = Pressure().targets(seen(slots, prompts=700, rollouts=20, scored=48, service=known), POOLS)
    assert targets.split["rollout"] > 22
    assert targets.split["train"] >= 19


def test_the_fluid_split_is_followed_though_another_pool_that_is_given_slots_idles() -> None:
    """Too few trainers hold everything up: judges find no work for that reason alone."""
    slots = fleet({"rollout": 51, "judge": 7, "train": 6})
    targets = Pressure().targets(seen(slots, prompts=20, rollouts=0, scored=748), POOLS)
    assert targets.split == {"rollout": 45, "judge": 9, "train": 10}


def test_a_pool_without_work_gives_its_slots_also_before_it_ever_finished_anything() -> None:
    """The trainer that opens a run stands idle with the only slot until somebody samples."""
    targets = Pressure().targets(seen(fleet({"train": 1}), prompts=48, service={}), POOLS)
    assert targets.split == {"rollout": 1, "judge": 0, "train": 0}


def test_one_slot_goes_where_the_work_is_and_stays_until_it_is_done() -> None:
    for pool, (prompts, rollouts, scored) in (
        ("rollout", (12, 0, 0)),
        ("judge", (0, 12, 0)),
        ("train", (0, 0, 12)),
    ):
        for start in ("rollout", "judge", "train"):
            observation = seen(fleet({start: 1}), prompts=prompts, rollouts=rollouts, scored=scored)
            targets = Pressure().targets(observation, POOLS)
            assert targets.split[pool] == 1, f"from {start}: {targets.reason}"


def test_a_line_at_its_sources_end_trains_a_short_batch() -> None:
    observation = replace(seen(fleet({"rollout": 1}), scored=2), groups=8)
    assert Pressure().targets(observation, POOLS).split["train"] == 1


def test_a_batch_that_waits_for_an_older_group_is_none() -> None:
    """Scored groups enough, a trainer that stands still, and what it lacks lies where nobody serves."""
    slots = fleet({"rollout": 1, "train": 2}, since=-1e6)
    waiting = replace(seen(slots, rollouts=5, scored=31), still=frozenset({"train"}))
    moved = Pressure().targets(waiting, POOLS).split
    assert moved["judge"] == 1, moved
    assert stages(waiting, POOLS)[-1].queue == waiting.groups - 1
    served = replace(waiting, slots=fleet({"rollout": 1, "judge": 1, "train": 1}))
    assert stages(served, POOLS)[-1].queue == 31, "it comes by itself"


def test_a_batch_that_is_not_over_says_that_training_costs_more() -> None:
    """Responses have leapt: the step that would tell what they cost lasts many times as long as the ones before."""
    known = services()
    usual = known["train"].item_s
    slots = fleet({"rollout": 54, "judge": 6, "train": 4})

    def in_training(batches: float) -> Observation:
        seconds = batches * seen(slots).groups * usual
        return seen(slots, prompts=50, scored=500, service=known | {"train": replace(known["train"], begun_s=seconds)})

    by_chance, late = in_training(1.2), in_training(6)
    assert stages(by_chance, POOLS)[-1].service.item_s == usual
    assert stages(late, POOLS)[-1].service.item_s == pytest.approx(6 * usual)
    split = Pressure().targets(late, POOLS).split
    assert split["train"] > 2 * Pressure().targets(by_chance, POOLS).split["train"], split
