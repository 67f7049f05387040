"""Slots that cannot be are refused before anything starts, with both numbers; what only sleeps needs no device."""

from __future__ import annotations

import pytest

from broker.errors import Misconfigured
from deploy.cross_checks import warnings_between
from deploy.run_check import load_run
from deploy.run_settings import RunSettings
from deploy.slot_check import check


def asked(slots: int, *overrides: str, run: str = "addition") -> RunSettings:
    return load_run(run, [f"scheduler.slots={slots}", *overrides])


def refusal(settings: RunSettings, gpus: int = 0, cores: int = 2) -> str:
    with pytest.raises(Misconfigured) as caught:
        check(settings, [str(number) for number in range(gpus)], cores)
    assert len(str(caught.value).split("; ")) >= 3, "what happened; what the system does next; the mend"
    return str(caught.value)


def test_more_slots_than_gpus_are_refused_with_both_numbers_where_models_run() -> None:
    assert "9 slots were asked for and 8 GPUs can be seen here" in refusal(asked(9), gpus=8)
    check(asked(8), [str(number) for number in range(8)], cores=2)


def test_more_slots_than_cores_can_carry_are_refused_with_both_numbers_and_a_crowd_is_warned_of() -> None:
    said = refusal(asked(9), cores=2)
    assert "9 slots were asked for and 2 cores can be used here, for 4 slots each at most" in said
    assert "ask for 8 or fewer" in said
    crowded = asked(8)
    check(crowded, [], cores=2)
    assert any("slots = 8 on 2 cores: they take turns" in warning for warning in warnings_between(crowded, 2))
    assert not any("take turns" in warning for warning in warnings_between(asked(4), 2))


def test_a_fleet_that_sleeps_needs_neither_gpus_nor_cores() -> None:
    paced = asked(64, run="paced")
    check(paced, ["0"], cores=1)
    assert "65 slots were asked for and 1 core can be used here" in refusal(asked(65, run="paced"), gpus=1, cores=1)
    assert not any("take turns" in warning for warning in warnings_between(paced, 2))


def test_minima_that_cannot_be_met_are_refused_with_both_numbers() -> None:
    assert "3 slots (rollout 1 + judge 1 + train 1) of 2 slots" in refusal(asked(2, run="paced"))
    assert "5 slots (rollout 5) of 4 slots" in refusal(asked(4, "pools.rollout={min=5}"))


def test_a_second_trainer_is_refused() -> None:
    assert "[pools.train] max = 2: of two trainers" in refusal(asked(4, "pools.train={max=2}"))


def test_an_unknown_pool_of_a_written_division_is_refused_with_those_there_are() -> None:
    said = refusal(asked(4, "scheduler.placement=fixed", "scheduler.split={judge=2}"))
    assert 'no pool "judge"' in said and "pools: rollout, train" in said


def test_an_unknown_placement_is_refused_with_those_there_are() -> None:
    with pytest.raises(Misconfigured) as caught:
        asked(4, "scheduler.placement=presure")
    assert 'did you mean "pressure"? known: pressure, proportional, fixed' in str(caught.value)
