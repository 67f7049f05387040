"""Slots follow the work that is there: what was worked on long ago moves none, and what is in a worker's hands counts.

The run, its streams and the fleet's records are real, and so are lookout, placement, planner and daemon. Slots say what
their supervisors say, but have no controller: what would be worked on is sent through the streams here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker import embedded_server
from broker.fleet import Fleet, Served
from broker.messages import Delivery
from broker.streams import PROMPTS, ROLE, ROLLOUTS, SCORED, WORK_STREAMS
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from scheduler.daemon import Daemon
from scheduler.devices import Devices
from scheduler.lifecycle import State
from scheduler.observation import Observation
from scheduler.slot import Slot
from tests.contract.broker_world import Broker, RedisWorld, Trainer, admit, join, open_run, pass_on, step, take

EAGER = ["scheduler.dwell_s=0", "scheduler.switching=1", "scheduler.hysteresis=0"]
"""Nothing but the work itself holds a slot where it is."""


class Story:
    """One run on one server, and fleets that serve it one after another."""

    def __init__(self, world: RedisWorld, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.fleets: list[Fleet] = []
        self.daemons: list[Daemon] = []

    async def observed(self, pools: list[str], held: dict[str, int], looks: int = 5) -> tuple[Observation, list[Any]]:
        """What the scheduler of a fleet with one slot per pool named sees in the end, and the moves that it ordered."""
        url = embedded_server.address(self.world.folder)
        fleet = await Fleet.connect(url, f"fleet-{len(self.fleets)}")
        self.fleets.append(fleet)
        await fleet.serve(Served(run=self.world.run, folder=str(self.folder), url=url))
        slots = [Slot(f"slot-{place}", fleet, Devices(), initial=pool) for place, pool in enumerate(pools)]
        said: list[str] = []
        daemon = Daemon(fleet, "the scheduler", ring=lambda *_: None, say=said.append)
        self.daemons.append(daemon)
        assert await daemon.leads() and await daemon.has_run()
        assert daemon.charge is not None
        for look in range(looks):
            for slot in slots:
                await self.report(slot, held, look)
            await daemon.cycle(daemon.charge)
        observation, _ = await daemon.charge.lookout.look(0.0)
        for slot in slots:
            if slot.run is not None:
                await slot.run.close()
        return observation, [move for one in await fleet.decisions() for move in one["moves"]]

    async def report(self, slot: Slot, held: dict[str, int], look: int) -> None:
        """As its supervisor says it while its controller has done two groups a second, half a second each."""
        slot.pool, slot.state = slot.wanted.pool or slot.initial, State.SERVING
        beat = {"busy_s": look * 1.0, "items": 2 * look, "held": held.get(slot.pool, 0)}
        slot.tally.heard(slot.pool, beat)
        await slot.look()

    async def close(self) -> None:
        for daemon in self.daemons:
            if daemon.charge is not None:
                await daemon.charge.lookout.run.close()
        for fleet in self.fleets:
            await fleet.close()


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    folder = new_run_folder(load_run("addition", EAGER), tmp_path / "runs", datetime.now(UTC)).resolve()
    with embedded_server.serving(tmp_path / "redis"):
        world = RedisWorld(tmp_path / "redis")
        told = Story(world, folder)
        try:
            yield told
        finally:
            await told.close()
            await world.close()


async def scored(broker: Broker, number: int) -> list[Delivery]:
    """So many new groups, rolled out and judged; the trainer has read them."""
    await admit(broker, number)
    await pass_on(broker, "producer", await take(broker, PROMPTS, "producer", number))
    await pass_on(broker, "judge", await take(broker, ROLLOUTS, "judge", number))
    return await take(broker, SCORED, "trainer", number)


async def train(trainer: Trainer, version: int, batch: list[Delivery]) -> None:
    await trainer.prepare(batch)
    line, announced = step(version, batch)
    await trainer.commit(line, announced, batch)


async def passed_through(broker: Any, stream: str) -> int:
    """Entries the stream was ever given."""
    return int((await broker.client.xinfo_stream(broker.keys.stream(stream)))["entries-added"])


async def pending(broker: Any, stream: str) -> int:
    return int((await broker.client.xpending(broker.keys.stream(stream), ROLE[stream]))["pending"])


async def test_ten_thousand_trained_groups_are_no_backlog_and_move_no_slot(story: Story) -> None:
    trainer, broker = await open_run(story.world, cap=2000, groups=1000), await join(story.world)
    for version in range(1, 11):
        await train(trainer, version, await scored(broker, 1000))
    assert [await passed_through(broker, stream) for stream in WORK_STREAMS] == [10_000] * 3
    for pools in (["train"], ["rollout"], ["rollout", "train"], ["rollout", "rollout", "rollout", "train"]):
        seen, moves = await story.observed(pools, held={})
        assert seen.backlog == dict.fromkeys(WORK_STREAMS, 0)
        assert moves == [], pools
    held_back = await scored(broker, 1000)
    seen, moves = await story.observed(["rollout"], held={})
    assert seen.backlog == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 1000}
    assert [move["target"] for move in moves] == ["train"], "history at `prompts` held a slot that `scored` needs"
    await train(trainer, 11, held_back)


async def test_groups_in_a_live_workers_hands_are_backlog_and_the_slot_that_holds_them_stays(story: Story) -> None:
    trainer, broker = await open_run(story.world, cap=100, groups=50), await join(story.world)
    await admit(broker, 50)
    in_hand = await take(broker, PROMPTS, "producer", 50)
    assert await broker.read(PROMPTS, "another", count=1, block_s=0) == [], "nothing is undelivered"
    assert await pending(broker, PROMPTS) == 50
    for pools in (["rollout"], ["rollout", "train"], ["rollout", "rollout", "train"]):
        seen, moves = await story.observed(pools, held={"rollout": 50})
        assert seen.backlog == {PROMPTS: 50, ROLLOUTS: 0, SCORED: 0}
        assert moves == [], pools
    _, moves = await story.observed(["train"], held={})
    assert [move["target"] for move in moves] == ["rollout"], "a slot with nothing to do goes where the work is"
    await pass_on(broker, "producer", in_hand)
    await pass_on(broker, "judge", await take(broker, ROLLOUTS, "judge", 50))
    batch = await take(broker, SCORED, "trainer", 50)
    seen, moves = await story.observed(["rollout"], held={})
    assert seen.backlog == {PROMPTS: 0, ROLLOUTS: 0, SCORED: 50}
    assert [move["target"] for move in moves] == ["train"]
    await train(trainer, 1, batch)
