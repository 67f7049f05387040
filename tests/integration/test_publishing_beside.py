"""While a step is trained the version before it is published; nothing that dies or is lost then is trained twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker.contract import Announcement
from broker.errors import Backpressure, Fenced, Unavailable
from broker.memory_broker import MemoryBroker
from broker.telemetry import Meter
from broker.weights import VersionStore
from consumers.algorithms import create as create_algorithm
from consumers.hand import Hand
from consumers.learners.base import StepResult
from consumers.learners.scripted import ScriptedLearner
from consumers.measurement import Measurement
from consumers.publication import Publication
from consumers.settings import AlgorithmSection, TrainSection
from consumers.step_record import StepRecord
from consumers.trainer_consumer import Trainer
from deploy.records import records
from tests.contract.broker_world import MemoryWorld, open_run, score, version

WITHIN_S = 20.0
"""A step that never gets what it waits for."""


class WatchedBroker(MemoryBroker):
    """Tells when a version has been committed; `fault` is called before each commit, and `answer` after it."""

    def __init__(self, world: MemoryWorld) -> None:
        super().__init__(world.server)
        self.committed = {number: threading.Event() for number in range(9)}
        self.fault: Callable[[int], None] = lambda _: None
        self.answer: Callable[[int], None] = lambda _: None
        self.read_bodies: Callable[[int], None] = lambda _: None
        self.reads = 0

    async def bodies(self, deliveries: Any) -> Any:
        self.reads += 1
        self.read_bodies(self.reads)
        return await super().bodies(deliveries)

    async def commit(self, line: Any, announcement: Announcement, deliveries: Any, **asked: Any) -> None:
        self.fault(line.version)
        await super().commit(line, announcement, deliveries, **asked)
        self.committed[line.version].set()
        self.answer(line.version)


class WaitingLearner(ScriptedLearner):
    """Whose step goes on only when a version has been committed."""

    def __init__(self, broker: WatchedBroker, awaited: dict[int, int]) -> None:
        super().__init__()
        self.broker, self.awaited, self.trained = broker, awaited, list[tuple[int, list[str]]]()
        self.seen = list[bool]()
        self.before: Callable[[int], None] = lambda _: None

    def step(self, groups: Any, advantages: Any, *, version: int, seed: int) -> StepResult:
        self.before(version)
        self.trained.append((version + 1, [group.id for group in groups]))
        self.seen.append(self.broker.committed[version].is_set() if version else True)
        if version + 1 in self.awaited:
            assert self.broker.committed[self.awaited[version + 1]].wait(WITHIN_S), "not published beside the step"
        return super().step(groups, advantages, version=version, seed=seed)


class ToldAtSecondLook(Measurement):
    """A measurement is told of once, to whoever looks first."""

    looks = 0

    async def look(self, broker: Any) -> str:
        self.looks += 1
        return "goal reached at version 1" if self.looks == 2 else ""


class Story:
    """A trainer of a run in memory, three batches of two scored groups before it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.world = folder, MemoryWorld()

    async def trainer(self, awaited: dict[int, int], **settings: Any) -> Trainer:
        await open_run(self.world, groups=2, staleness=2, cap=6)
        scored = await score(self.world, 6)
        self.broker = WatchedBroker(self.world)
        await self.broker.claim(2)
        await self.broker.enter(timeout_s=1)
        self.learner, store = WaitingLearner(self.broker, awaited), VersionStore(self.folder / "store")
        broker, chosen, meter = cast("Any", self.broker), TrainSection(groups=2, staleness=2, **settings), Meter()
        hand = Hand(broker, chosen, 6, meter, held={one.entry.group: one for one in scored})
        return Trainer(
            broker=broker,
            learner=self.learner,
            algorithm=create_algorithm(AlgorithmSection()),
            hand=hand,
            publication=Publication(broker, store, self.learner, 9),
            measurement=Measurement(self.folder / "evaluations.jsonl", 0, 1, None),
            records=StepRecord(self.folder / "steps.jsonl"),
            settings=chosen,
            live=version(0),
            run_seed=1,
            steps=3,
            retake=self.retake,
            meter=meter,
            stop=asyncio.Event(),
        )

    async def retake(self) -> Announcement:
        live = (await self.broker.look()).live
        assert live
        return live

    async def assert_each_group_trained_once(self) -> None:
        ledger = await self.broker.ledger()
        assert [(line.version, list(line.groups)) for line in ledger] == self.learner.trained
        assert len({group for line in ledger for group in line.groups}) == 6
        assert (await self.broker.books()).open == {}
        assert [line["version"] for line in records(self.folder / "steps.jsonl")] == [1, 2, 3]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


@pytest.mark.timeout(60)
async def test_a_version_is_published_while_the_next_step_is_trained(story: Story) -> None:
    trainer = await story.trainer({2: 1, 3: 2})
    assert await trainer.run() == "trained 3 versions"
    await story.assert_each_group_trained_once()
    assert trainer.meter.held == 0 and trainer.meter.items == 6


@pytest.mark.timeout(60)
async def test_the_next_step_begins_only_after_a_checkpoint_that_is_due(story: Story) -> None:
    trainer = await story.trainer({}, checkpoint_every=1)
    await trainer.run()
    assert story.learner.seen == [True, True, True]
    assert [number for number, _, _ in VersionStore(story.folder / "store").checkpoints()][-1] == 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lost", ["before the commit", "its answer"])
async def test_a_server_that_goes_away_while_both_go_on_costs_nothing(story: Story, lost: str) -> None:
    trainer = await story.trainer({2: 1, 3: 2})
    once = [1]

    def fail(number: int) -> None:
        if number in once:
            once.remove(number)
            raise Unavailable("committing: no answer")

    if lost == "its answer":
        story.broker.answer = fail
    else:
        story.broker.fault = fail
    assert await trainer.run() == "trained 3 versions"
    assert once == []
    await story.assert_each_group_trained_once()


@pytest.mark.timeout(60)
async def test_a_server_that_is_full_at_the_commit_is_waited_for(story: Story) -> None:
    trainer = await story.trainer({2: 1})
    once = [1]

    def full(number: int) -> None:
        if number in once:
            once.remove(number)
            raise Backpressure("committing: the server is full")

    story.broker.fault = full
    assert await trainer.run() == "trained 3 versions"
    await story.assert_each_group_trained_once()
    assert trainer.meter.spent_s < trainer.meter.busy_s + 1e-6


@pytest.mark.timeout(60)
async def test_a_trainer_that_is_replaced_publishes_nothing_it_has_learnt_meanwhile(story: Story) -> None:
    trainer = await story.trainer({})

    def replaced(number: int) -> None:
        if number == 2:
            raise Fenced("a newer trainer is at work")

    story.broker.fault = replaced
    with pytest.raises(Fenced):
        await trainer.run()
    assert [line.version for line in await story.broker.ledger()] == [1]
    assert len((await story.broker.books()).open) == 4


@pytest.mark.timeout(60)
async def test_a_learner_that_is_ahead_of_the_run_never_goes_on_from_there(story: Story) -> None:
    """The server stays away for longer than it is waited for: what is trained cannot be published any more."""
    trainer = await story.trainer({})

    def away(number: int) -> None:
        if number == 2:
            raise Unavailable("committing: no answer")

    async def gone() -> Announcement:
        trainer.stop.set()  # it would be waited for otherwise
        raise Unavailable("taking the run over: no answer")

    story.broker.fault, trainer.retake = away, gone
    with pytest.raises(Unavailable):
        await trainer.run()
    assert [line.version for line in await story.broker.ledger()] == [1]


@pytest.mark.timeout(60)
async def test_a_goal_that_is_seen_during_a_step_ends_the_run_after_it(story: Story) -> None:
    trainer = await story.trainer({})
    trainer.measurement = ToldAtSecondLook(story.folder / "evaluations.jsonl", 0, 1, None)
    assert await trainer.run() == "goal reached at version 1"
    assert [number for number, _ in story.learner.trained] == [1]
    assert (await story.broker.look()).finished == "goal reached at version 1"


@pytest.mark.timeout(60)
async def test_a_trainer_that_is_told_to_stop_begins_no_further_step(story: Story) -> None:
    trainer = await story.trainer({})
    chosen = threading.Event()

    def read(times: int) -> None:
        if times == 2:  # the next batch is there while the first is being trained
            trainer.stop.set()
            chosen.set()

    def train(version: int) -> None:
        assert chosen.wait(WITHIN_S), "nothing was read beside the step"

    story.broker.read_bodies, story.learner.before = read, train
    assert await trainer.run() == "stopped"
    assert [number for number, _ in story.learner.trained] == [1]
    assert [line.version for line in await story.broker.ledger()] == [1]
    assert len((await story.broker.books()).open) == 4
