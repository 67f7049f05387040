"""What roles report of their own work, on a run in memory: seconds per finished group, whoever else is in hand."""

from __future__ import annotations

import asyncio

import pytest

from broker.consume import Consuming, Rules
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome, Release
from broker.streams import PROMPTS
from broker.telemetry import Meter
from tests.contract.broker_world import MemoryWorld, admit, join, open_run, rolled, state


class Line:
    """A handler whose groups wait for their turn, `took_s` each; the meter's clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[asyncio.Event] = []

    def clock(self) -> float:
        return self.now

    async def __call__(self, delivery: Delivery, group: Group) -> Outcome:
        turn = asyncio.Event()
        self.turns.append(turn)
        await turn.wait()
        if group.id.endswith("/2"):
            return Release(reason="not today", failed=True)
        return Forward(group=rolled(group))

    async def after(self, seconds: float, which: int) -> None:
        self.now += seconds
        self.turns[which].set()


@pytest.mark.timeout(30)
async def test_finished_groups_count_their_share_and_released_ones_nothing() -> None:
    world = MemoryWorld()
    await open_run(world, cap=8)
    broker = await join(world)
    await admit(broker, 4)
    line, stop = Line(), asyncio.Event()
    meter = Meter(clock=line.clock)
    rules = Rules(capacity=4, block_s=0.05, drain_s=0.1)
    running = asyncio.create_task(Consuming(broker, PROMPTS, "slot", line, rules, meter, stop).run())
    await state(lambda: len(line.turns) == 4)
    await line.after(4.0, which=0)
    await state(lambda: meter.items == 1)
    assert meter.spent_s == pytest.approx(1.0)
    await line.after(3.0, which=1)
    await state(lambda: meter.items == 2)
    assert meter.spent_s == pytest.approx(1.0 + 2.0)
    await line.after(2.0, which=2)
    await state(lambda: len(line.turns) == 5 or meter.progress == 3)
    stop.set()
    line.now += 50.0
    await running
    assert (meter.items, meter.held) == (2, 0)
    assert meter.spent_s == pytest.approx(3.0)
    assert meter.busy_s == pytest.approx(59.0)
    assert meter.facts()["places"] == 4.0
