"""What a trainer does with groups, on a run in memory: late ones are kept for readers, and a step is metered whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from broker.archive import Archive, closed_groups
from broker.messages import Delivery
from broker.telemetry import Meter
from broker.weights import VersionStore
from consumers.algorithms import create as create_algorithm
from consumers.batching import Batch
from consumers.hand import Hand
from consumers.learners.scripted import ScriptedLearner, ScriptedLearnerOptions
from consumers.measurement import Measurement
from consumers.publication import Publication
from consumers.settings import AlgorithmSection, TrainSection
from consumers.step_record import StepRecord
from consumers.trainer_consumer import Trainer
from tests.contract.broker_world import MemoryWorld, open_run, score, version


async def trainer_in(world: MemoryWorld, folder: Path, **settings: Any) -> tuple[Trainer, list[Delivery]]:
    """A trainer of a run with two scored groups."""
    broker = cast("Any", await open_run(world, groups=2, staleness=0, cap=4))
    scored = await score(world, 2)
    learner, store = ScriptedLearner(ScriptedLearnerOptions(pace_s=0.2)), VersionStore(folder / "store")
    chosen, meter = TrainSection(groups=2, staleness=0, **settings), Meter()
    archive = Archive(folder / "groups", "trainer-0")
    hand = Hand(broker, chosen, 4, meter, archive, held={one.entry.group: one for one in scored})
    trainer = Trainer(
        broker=broker,
        learner=learner,
        hand=hand,
        algorithm=create_algorithm(AlgorithmSection()),
        publication=Publication(broker, store, learner, 2),
        measurement=Measurement(folder / "evaluations.jsonl", 0, 1, None),
        records=StepRecord(folder / "steps.jsonl"),
        settings=chosen,
        live=version(0),
        run_seed=1,
        steps=9,
        retake=cast("Any", None),
        meter=meter,
        stop=asyncio.Event(),
    )
    return trainer, scored


@pytest.mark.timeout(30)
async def test_a_group_that_is_retired_for_coming_late_is_archived_with_its_answers(tmp_path: Path) -> None:
    trainer, scored = await trainer_in(MemoryWorld(), tmp_path, late="retire")
    await trainer.hand.put_aside_late(5, dict.fromkeys(trainer.hand.held, 0))
    kept = list(closed_groups(tmp_path / "groups"))
    assert [one.group.id for one in kept] == [one.entry.group for one in scored]
    assert {(one.fate, one.reason) for one in kept} == {("retired", "stale")}
    assert all(one.group.rollouts and one.group.scores for one in kept)
    assert trainer.hand.held == {}
    assert (await trainer.broker.books()).counts["train.retired.stale"] == 2


@pytest.mark.timeout(30)
async def test_a_late_group_that_goes_back_for_new_answers_is_not_archived(tmp_path: Path) -> None:
    trainer, _ = await trainer_in(MemoryWorld(), tmp_path, late="recycle")
    await trainer.hand.put_aside_late(5, dict.fromkeys(trainer.hand.held, 0))
    assert list(closed_groups(tmp_path / "groups")) == []
    assert len((await trainer.broker.books()).open) == 2


@pytest.mark.timeout(30)
async def test_a_step_counts_all_its_groups_and_all_its_seconds_once(tmp_path: Path) -> None:
    trainer, scored = await trainer_in(MemoryWorld(), tmp_path)
    await trainer.steps_from(Batch(deliveries=tuple(scored), reason="the oldest"))
    assert trainer.live.version == 1
    assert trainer.meter.items == 2
    assert 0.2 <= trainer.meter.spent_s == pytest.approx(trainer.meter.busy_s, abs=0.01)
