"""The consuming loop on a run in memory: what it asks of the broker while it works."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from broker.archive import Archive
from broker.consume import Consuming, Rules
from broker.contract import RunState
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome, Retire, Verdict
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
async def test_a_result_that_no_reader_would_take_buries_its_group_and_the_others_go_on() -> None:
    world = MemoryWorld()
    trainer = await open_run(world, cap=GROUPS)
    broker = await join(world)
    await admit(broker, 3)
    first = min((await broker.books()).open)

    async def one_is_unsound(delivery: Delivery, group: Group) -> Outcome:
        done = rolled(group)
        if group.id == first and done.rollouts is not None:
            done = replace(done, rollouts=replace(done.rollouts, logprobs=np.full_like(done.rollouts.logprobs, np.nan)))
        return Forward(group=done)

    meter, stop = Meter(), asyncio.Event()
    running = asyncio.create_task(
        Consuming(broker, PROMPTS, "slot", one_is_unsound, Rules(capacity=1, block_s=0.1), meter, stop).run()
    )
    await state(lambda: meter.items == 3)
    books = await broker.books()
    assert books.counts["train.buried"] == 1 and first not in books.open
    await trainer.finish("enough")
    await asyncio.wait_for(running, 5)


@pytest.mark.timeout(30)
async def test_a_group_that_cannot_be_archived_ends_its_process_and_is_not_held_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = MemoryWorld()
    await open_run(world, cap=GROUPS)
    broker = await join(world)
    await admit(broker, 1)
    archive = Archive(tmp_path, "rollout-0")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(archive, "append", full)

    async def retiring(delivery: Delivery, group: Group) -> Outcome:
        return Retire(reason="no_signal")

    consuming = Consuming(
        broker, PROMPTS, "slot", retiring, Rules(capacity=1, block_s=0.1), Meter(), asyncio.Event(), archive=archive
    )
    with pytest.raises(OSError, match="no space left"):
        await asyncio.wait_for(consuming.run(), 10)


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
