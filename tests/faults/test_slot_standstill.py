"""A trainer that has batches enough and may take none, because an older group waits where nobody serves, is not waited
for: the fleet's only slot leaves it, works on that group, and the run goes on.

Real broker, slot, controllers and scheduler. The test is one more producer, which holds the oldest group for long and
gives it back.
"""

from __future__ import annotations

import asyncio

import pytest

from broker.messages import Delivery
from broker.outcomes import Release
from broker.redis_broker import RedisBroker
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from tests.faults.slot_runs import OnSlots
from tests.faults.slot_worlds import BY_SCRIPT, Launch
from tests.integration.test_launcher import until

SLOT = "slot-0"
GOES_ON_S = 45.0
"""Of these ten pass before a trainer that does nothing is no longer taken for busy; the slot moves there and back."""

LONG_STEPS = ("train.options={pace_s=6}", "scheduler.horizon_s=40")
"""One step is work for longer than the 4 s for which a scheduler of this horizon leaves a slot that has some."""


class SlowProducer:
    """It is in no hurry."""

    def __init__(self, run: OnSlots) -> None:
        self.run = run

    async def entered(self) -> RedisBroker:
        broker = await RedisBroker.connect(self.run.url, self.run.folder.name)
        await broker.enter(timeout_s=60)
        return broker

    async def take_the_oldest(self) -> Delivery:
        """The first group that is to be trained; whatever is read on the way is given back."""
        broker = await self.entered()
        try:
            while True:
                for one in await broker.read(PROMPTS, "slow", count=1, block_s=1):
                    if one.entry.kind == "train":
                        return one
                    await broker.settle("slow", [(one, Release(reason="not for training"))])
        finally:
            await broker.close()

    async def give_back(self, held: Delivery) -> None:
        broker = await self.entered()
        try:
            assert await broker.settle("slow", [(held, Release(reason="in no hurry"))]) == ["done"]
        finally:
            await broker.close()

    async def backlog(self) -> dict[str, int]:
        broker = await RedisBroker.connect(self.run.url, self.run.folder.name)
        try:
            return await broker.backlog()
        finally:
            await broker.close()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_trainer_that_waits_for_a_group_where_nobody_serves_is_not_waited_for(launch: Launch) -> None:
    run = launch(BY_SCRIPT, 1, "run.steps=3", "broker.lease_s=60", *LONG_STEPS)
    run.pass_version(0, 60)
    slow = SlowProducer(run)
    held = asyncio.run(asyncio.wait_for(slow.take_the_oldest(), 60))
    run.pass_version(1, 60)
    ahead = 2 * BY_SCRIPT.groups - 1
    until(lambda: asyncio.run(slow.backlog()) == {PROMPTS: 1, ROLLOUTS: 0, SCORED: ahead}, 60)
    run.order(SLOT, "train", "pin")
    run.reported(SLOT, pool="train", state="serving")
    asyncio.run(slow.give_back(held))
    run.order(SLOT, "train", "unpin")
    assert run.look() == 1, "it trained, so it did not wait for that group"
    run.pass_version(2, GOES_ON_S)
    run.finish(BY_SCRIPT.within_s)
