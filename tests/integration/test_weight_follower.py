"""The gate between groups and weights: when an engine may change versions, and what it refuses to serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import pytest_asyncio

from broker.contract import Books, LedgerLine
from broker.errors import Broken, Poison
from broker.measures import SYNCING
from broker.messages import Entry, Kind
from broker.settings import WeightsSection
from broker.streams import SCORED
from broker.telemetry import Meter
from broker.weights import Manifest, VersionStore, read_manifest, write_manifest
from consumers.learners.scripted import ScriptedLearner
from consumers.publication import Publication
from producers.engines import create
from producers.settings import RolloutSection
from producers.weight_follower import Mode, WeightFollower
from tests.contract.broker_world import MemoryWorld, admit, join, pass_on, take
from tests.integration.test_launcher import lay_model

NOBODY = Books(tick=0, cursor=0, cursor_value="", open={}, counts={})
CANARY = (np.array([1, 5], np.int32), np.array([4, 9, 2], np.int32))


class Story:
    """A run on the memory broker whose versions are really written, and a follower of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = MemoryWorld()
        self.store = VersionStore(folder / "store")
        self.learner = ScriptedLearner()
        self.publication = Publication(cast("Any", None), self.store, self.learner, 9, canaries=(CANARY,))
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        lay_model(self.folder / "model")
        self.trainer = await self.world.trainer()
        await self.trainer.claim(1)
        first = self.write(0)
        await self.trainer.open_run(cap=99, groups=1, staleness=50, eval_cap=9, announcement=first.announcement)
        self.broker = await join(self.world)

    def write(self, version: int) -> Manifest:
        self.learner.weights = float(version)
        return self.publication.write(version, 1, 1, (), seed=0, books=NOBODY)

    async def publish(self, version: int, manifest: Manifest | None = None) -> None:
        """Make it live, by training one group."""
        manifest = manifest or self.write(version)
        await admit(self.broker, 1)
        for stream in ("prompts", "rollouts"):
            await pass_on(self.broker, "w", await take(self.broker, stream, "w", 1))
        scored = await take(self.broker, SCORED, "trainer", 1)
        line = LedgerLine(
            version=version, epoch=1, parent_epoch=1, digest=manifest.digest, groups=(scored[0].entry.group,)
        )
        await self.trainer.commit(line, manifest.announcement, scored)

    def follow(self, mode: Mode) -> WeightFollower:
        engine = create("scripted", self.folder / "model", RolloutSection(engine="scripted"), seed=0)
        follower = WeightFollower(
            self.broker, engine, self.store, WeightsSection(), mode=mode, holder="rollout-0", meter=Meter()
        )
        self.tasks = [asyncio.create_task(follower.follow()), asyncio.create_task(follower.switch())]
        return follower

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def story(tmp_path: Path) -> AsyncGenerator[Story]:
    told = Story(tmp_path)
    await told.open()
    yield told
    await told.close()


def entry(kind: Kind = "train", floor: int = 0) -> Entry:
    return Entry(group=f"g/{kind}/{floor}", kind=kind, task="t", size=1, floor=floor, last_version=floor + 50)


async def serves(follower: WeightFollower, version: int) -> None:
    async with asyncio.timeout(5), follower.changed:
        await follower.changed.wait_for(lambda: follower.version == version and not follower.loading)


async def knows(follower: WeightFollower, version: int) -> None:
    async with asyncio.timeout(5), follower.changed:
        await follower.changed.wait_for(lambda: follower.newest == version)


class Running:
    """A group that passes the gate and stays in the engine until told to leave; `under` is what was served then."""

    def __init__(self, follower: WeightFollower, entry: Entry) -> None:
        self.follower, self.entry = follower, entry
        self.started, self.leave = asyncio.Event(), asyncio.Event()
        self.under = -1
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        async with self.follower.serving(self.entry):
            self.under = self.follower.version
            self.started.set()
            await self.leave.wait()

    async def end(self) -> None:
        self.leave.set()
        await asyncio.wait_for(self.task, 5)

    async def has_started(self) -> None:
        await asyncio.wait_for(self.started.wait(), 5)


async def settled() -> None:
    """Let everything that can happen now happen: nobody in these stories waits for time."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_between_groups_a_running_group_ends_under_its_version_and_the_next_starts_under_the_newest(
    story: Story,
) -> None:
    follower = story.follow("between_groups")
    running = Running(follower, entry())
    await running.has_started()
    await story.publish(1)
    await knows(follower, 1)
    following = Running(follower, entry())
    await settled()
    assert (follower.version, following.started.is_set()) == (0, False)
    await running.end()
    await following.has_started()
    assert following.under == 1
    await following.end()


async def test_a_drain_reads_nothing_new_and_lets_all_in_hand_end_under_the_old_version(story: Story) -> None:
    follower = story.follow("drain")
    running = Running(follower, entry())
    await running.has_started()
    assert follower.may_read()
    await story.publish(1)
    await knows(follower, 1)
    assert not follower.may_read()
    in_hand = Running(follower, entry())
    await in_hand.has_started()
    assert in_hand.under == 0
    needs_newer = Running(follower, entry(floor=1))
    await running.end()
    await in_hand.end()
    await needs_newer.has_started()
    assert (needs_newer.under, follower.may_read()) == (1, True)
    await needs_newer.end()


async def test_in_flight_the_engine_changes_under_a_running_group(story: Story) -> None:
    follower = story.follow("in_flight")
    running = Running(follower, entry())
    await running.has_started()
    await story.publish(1)
    await serves(follower, 1)
    assert not running.task.done()
    await running.end()


@pytest.mark.parametrize("mode", ["between_groups", "in_flight", "drain"])
async def test_an_evaluation_is_sampled_under_exactly_its_version_and_the_newest_comes_back(
    mode: Mode, story: Story
) -> None:
    follower = story.follow(mode)
    await serves(follower, 0)
    await story.publish(1)
    await serves(follower, 1)
    measured = Running(follower, entry("eval", floor=0))
    await measured.has_started()
    assert measured.under == 0
    await story.publish(2)
    await knows(follower, 2)
    await settled()
    assert follower.version == 0, "an evaluation is never crossed by an update"
    await measured.end()
    await serves(follower, 2)


async def test_how_long_a_version_took_to_be_served_counts_waiting_and_counts_once(story: Story) -> None:
    follower = story.follow("between_groups")
    running = Running(follower, entry())
    await running.has_started()
    await story.publish(1)
    await knows(follower, 1)
    since = time.monotonic()
    await asyncio.sleep(0.5)  # much longer than loading takes
    waited = time.monotonic() - since
    await running.end()
    await serves(follower, 1)
    took = follower.meter.synced_s
    assert took is not None and took >= waited
    measured = Running(follower, entry("eval", floor=0))
    await measured.has_started()
    await measured.end()
    await serves(follower, 1)
    assert (follower.meter.synced_s, follower.meter.facts()["synced_s"]) == (took, round(took, 3))
    (family,) = follower.meter.metrics.of(SYNCING, {}).collect()
    assert [sample.value for sample in family.samples if sample.name.endswith("_count")] == [1]


async def test_an_evaluation_of_a_version_that_is_gone_is_poison(story: Story) -> None:
    await story.publish(1)
    await story.publish(2)
    await story.trainer.forget_versions([2])
    follower = story.follow("between_groups")
    await serves(follower, 2)
    with pytest.raises(Poison, match="version 1 is gone"):
        async with asyncio.timeout(5), follower.serving(entry("eval", floor=1)):
            pytest.fail("it was let through")


async def test_the_canary_stops_an_engine_to_which_a_publish_did_not_arrive(story: Story) -> None:
    """The planted fault: version 1's file still holds version 0's tensors, under a digest that fits the file."""
    manifest = story.write(1)
    folder = story.store.folder(manifest.path)
    story.learner.weights = 0.0
    story.learner.export()(folder)
    stale = read_manifest(story.store.folder("versions/000000-e001")).digest
    write_manifest(folder, replace(manifest, digest=stale))
    follower = story.follow("between_groups")
    await serves(follower, 0)
    await story.publish(1, replace(manifest, digest=stale))
    with pytest.raises(Broken, match=r"version 1: the engine's log-probs differ .* twice"):
        await asyncio.wait_for(story.tasks[1], 5)
    assert follower.version == 0


async def test_tensors_that_are_not_the_announced_ones_are_not_served(story: Story) -> None:
    manifest = story.write(1)
    (story.store.folder(manifest.path) / "model.safetensors").write_bytes(b"torn")
    follower = story.follow("between_groups")
    await serves(follower, 0)
    await story.publish(1, manifest)
    with pytest.raises(Broken, match="not served"):
        await asyncio.wait_for(story.tasks[1], 5)


async def test_groups_at_the_gate_do_not_wake_one_another(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that waits for its weights would cost the square of its size otherwise."""
    follower, asked = story.follow("between_groups"), list[Entry]()
    await serves(follower, 0)
    may_start = follower.may_start

    def counted(one: Entry) -> bool:
        asked.append(one)
        return may_start(one)

    monkeypatch.setattr(follower, "may_start", counted)
    waiting, groups = list[Running](), 50
    for _ in range(groups):
        waiting.append(Running(follower, entry(floor=1)))
        await settled()
    await story.publish(1)
    await serves(follower, 1)
    await asyncio.gather(*(one.has_started() for one in waiting))
    assert len(asked) < 10 * groups, len(asked)
    await asyncio.gather(*(one.end() for one in waiting))
