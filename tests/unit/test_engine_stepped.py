"""A core behind its thread: groups of one turn start together, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from broker.errors import Broken, Poison, Transient
from broker.messages import Group, Prompt, Rollouts
from broker.telemetry import Meter
from producers.engines.base import Continuation
from producers.engines.siblings import Sibling, Siblings
from producers.engines.stepped import SteppedEngine
from producers.rollout_producer import RolloutProducer

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(20)]


class EchoCore:
    """Finishes in each step all groups it has; notes which it had, and in which thread."""

    capacity = 4

    def __init__(self) -> None:
        self.waiting: list[Group] = []
        self.batches: list[int] = []
        self.threads: set[str] = set()
        self.closed = False

    @property
    def is_idle(self) -> bool:
        return not self.waiting

    def add(self, group: Group) -> None:
        self.threads.add(threading.current_thread().name)
        if group.prompt.max_actions > 8:
            raise Poison("too long")
        self.waiting.append(group)

    def step(self) -> list[tuple[str, Rollouts]]:
        self.threads.add(threading.current_thread().name)
        groups, self.waiting = self.waiting, []
        self.batches.append(len(groups))
        return [(group.id, echo(group)) for group in groups]

    def load(self, folder: Path, version: int) -> None:
        self.threads.add(threading.current_thread().name)
        if version < 0:
            raise Transient("no such file")

    def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        return [np.zeros(len(each.continuation), np.float32) for each in sequences]

    def close(self) -> None:
        self.closed = True


class GatedCore(EchoCore):
    """Stays in its step until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.gate = threading.Event(), threading.Event()

    def step(self) -> list[tuple[str, Rollouts]]:
        self.started.set()
        self.gate.wait(10)
        return super().step()


class FailingCore(EchoCore):
    def step(self) -> list[tuple[str, Rollouts]]:
        raise ZeroDivisionError("in the middle")


def echo(group: Group) -> Rollouts:
    siblings = Siblings(group)
    actions = group.prompt.actions.astype(np.int32)
    siblings.finish(0, Sibling(actions, np.zeros(len(actions), np.float32), np.zeros(len(actions), np.int32), "length"))
    return siblings.rollouts(lambda said: tuple(str(each.tolist()) for each in said))


def group(number: int, most: int = 4) -> Group:
    prompt = Prompt(text="", actions=np.array([number], np.int32), size=1, seed=0, max_actions=most)
    return Group(id="the/same/name", kind="train", prompt=prompt)


@asynccontextmanager
async def serving(core: EchoCore, **limits: float) -> AsyncGenerator[SteppedEngine]:
    engine = SteppedEngine(core, **limits)
    try:
        yield engine
    finally:
        await engine.close()


async def test_groups_of_one_turn_start_in_one_step_and_each_gets_its_own_answer() -> None:
    core = EchoCore()
    async with serving(core) as engine:
        answers = await asyncio.gather(*[engine.generate(group(number)) for number in range(64)])
        assert [int(each.actions[0]) for each in answers] == list(range(64))
        assert core.batches == [64] and engine.tokens == 64 and engine.beats == 1


async def test_only_one_thread_ever_touches_the_core() -> None:
    core = EchoCore()
    async with serving(core) as engine:
        await asyncio.gather(engine.load(Path(), 3), engine.generate(group(1)), engine.logprobs([]))
        assert core.threads == {"engine"} and engine.version == 3
    assert core.closed


async def test_poison_reaches_its_own_caller_only() -> None:
    async with serving(EchoCore()) as engine:
        good, bad = await asyncio.gather(
            engine.generate(group(1)), engine.generate(group(2, most=9)), return_exceptions=True
        )
        assert isinstance(good, Rollouts) and isinstance(bad, Poison)


async def test_a_load_that_fails_leaves_the_version_and_the_engine() -> None:
    async with serving(EchoCore()) as engine:
        await engine.load(Path(), 1)
        with pytest.raises(Transient):
            await engine.load(Path(), -1)
        assert engine.version == 1
        await engine.generate(group(1))


async def test_a_core_that_fails_fails_all_who_wait_and_all_who_come() -> None:
    async with serving(FailingCore()) as engine:
        waiting = [asyncio.create_task(engine.generate(group(number))) for number in range(3)]
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, Broken) and "in the middle" in str(answer)
        with pytest.raises(Broken, match=r"in the middle"):
            await engine.generate(group(9))
        with pytest.raises(Broken, match=r"in the middle"):
            await engine.load(Path(), 2)


async def test_a_step_that_hangs_is_noticed() -> None:
    core = GatedCore()
    async with serving(core, patience_s=0.05) as engine:
        with pytest.raises(Broken, match=r"has not finished a step for 0.05 s"):
            await engine.generate(group(1))
        core.gate.set()


async def test_closing_ends_by_its_deadline_and_tells_whoever_waits() -> None:
    core = GatedCore()
    engine = SteppedEngine(core, close_s=0.05)
    waiting = asyncio.create_task(engine.generate(group(1)))
    await asyncio.to_thread(core.started.wait, 10)
    with pytest.raises(Broken, match=r"goes on 0.05 s after it was closed"):
        await engine.close()
    with pytest.raises(Transient):
        await waiting
    core.gate.set()


async def test_an_answer_that_nobody_wants_any_more_is_dropped() -> None:
    core = GatedCore()
    async with serving(core) as engine:
        given_up = asyncio.create_task(engine.generate(group(1)))
        await asyncio.to_thread(core.started.wait, 10)
        given_up.cancel()
        again = asyncio.create_task(engine.generate(group(2)))
        await asyncio.sleep(0)
        core.gate.set()
        assert (await again).actions.tolist() == [2]
        assert not engine.waiters


async def test_a_core_that_knows_its_speed_by_occupancy_is_metered_with_it() -> None:
    class HalfFull(EchoCore):
        half_at = 0.5

    for core, expected in ((HalfFull(), 0.5), (EchoCore(), 0.0)):
        engine, meter = SteppedEngine(core), Meter()
        RolloutProducer(engine, cast("Any", None), meter)
        await engine.close()
        assert meter.facts()["half_at"] == expected
