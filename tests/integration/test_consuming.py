"""The consuming loop on a run in memory: what it asks of the broker while it works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from broker.consume import Consuming, Rules
from broker.contract import RunState
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome, Verdict
from broker.streams import PROMPTS
from broker.telemetry import Meter
from tests.contract.broker_world import MemoryWorld, admit, join, open_run, rolled, state

GROUPS = 200


async def forwarding(delivery: Delivery, group: Group) -> Outcome:
    return Forward(group=rolled(group))


@pytest.mark.timeout(60)
async def test_a_reader_that_works_and_has_room_asks_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    trainer = await open_run(world, cap=GROUPS)
    broker = await join(world)
    await admit(broker, 1)
    reads, read = list[float](), broker.read

    async def counted(stream: str, reader: str, *, count: int, block_s: float) -> list[Delivery]:
        reads.append(block_s)
        return await read(stream, reader, count=count, block_s=block_s)

    async def slow(delivery: Delivery, group: Group) -> Outcome:
        await asyncio.sleep(2)
        return Forward(group=rolled(group))

    monkeypatch.setattr(broker, "read", counted)
    meter, rules = Meter(), Rules(capacity=4, block_s=1.0)
    running = asyncio.create_task(Consuming(broker, PROMPTS, "slot", slow, rules, meter, asyncio.Event()).run())
    await state(lambda: meter.items == 1)
    assert 1 <= len(reads) < 14
    await trainer.finish("enough")
    await asyncio.wait_for(running, 20)


@pytest.mark.timeout(60)
async def test_what_is_answered_at_a_drains_deadline_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    await open_run(world, cap=GROUPS)
    broker = await join(world)
    await admit(broker, 4)
    stop, settle = asyncio.Event(), broker.settle

    async def slow(reader: str, settlements: Sequence[tuple[Delivery, Outcome]]) -> list[Verdict]:
        stop.set()  # told to leave while this is on its way
        await asyncio.sleep(0.3)
        return await settle(reader, settlements)

    async def one_answers(delivery: Delivery, group: Group) -> Outcome:
        if delivery.entry.group != first:
            await asyncio.sleep(60)
        return Forward(group=rolled(group))

    first = min((await broker.books()).open)
    monkeypatch.setattr(broker, "settle", slow)
    meter, rules = Meter(), Rules(capacity=4, block_s=0.1, drain_s=0.05)
    with capture_logs() as logged:
        await asyncio.wait_for(Consuming(broker, PROMPTS, "slot", one_answers, rules, meter, stop).run(), 30)
    assert [line for line in logged if line["event"] == "another reader was first"] == []
    assert meter.items == 1
    streams = [line.stream for line in (await broker.books()).open.values()]
    assert sorted(streams) == ["prompts", "prompts", "prompts", "rollouts"]


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
