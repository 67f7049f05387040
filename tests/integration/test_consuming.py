"""The consuming loop on a run in memory: what it asks of the broker while it works."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from broker.consume import Consuming, Rules
from broker.contract import RunState
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome
from broker.streams import PROMPTS
from broker.telemetry import Meter
from tests.contract.broker_world import MemoryWorld, admit, join, open_run, rolled, state

GROUPS = 200


async def forwarding(delivery: Delivery, group: Group) -> Outcome:
    return Forward(group=rolled(group))


@pytest.mark.timeout(30)
async def test_a_reader_fed_one_group_at_a_time_does_not_look_at_the_run_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    trainer = await open_run(world, cap=GROUPS)
    broker = await join(world)
    await admit(broker, GROUPS)
    looks, look = list[float](), broker.look

    async def counted() -> RunState:
        looks.append(time.monotonic())
        return await look()

    monkeypatch.setattr(broker, "look", counted)
    meter = Meter()
    rules = Rules(capacity=1, block_s=0.5)
    running = asyncio.create_task(Consuming(broker, PROMPTS, "slot", forwarding, rules, meter, asyncio.Event()).run())
    await state(lambda: meter.items == GROUPS)
    assert all(later - earlier >= rules.block_s for earlier, later in pairwise(looks))
    assert len(looks) < GROUPS / 10
    await trainer.finish("enough")
    await asyncio.wait_for(running, 5 * rules.block_s)
