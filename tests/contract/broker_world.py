"""Where the broker suite takes place: a server of each kind, handles on it, and groups to send through it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

import numpy as np
import redis

from broker import embedded_server
from broker.contract import Announcement, FeederBroker, LedgerLine, VersionBroker, WorkBroker
from broker.errors import Unavailable
from broker.memory_broker import MemoryBroker, MemoryServer
from broker.messages import Delivery, Group, Kind, Prompt, Rollouts, Scores
from broker.operator_contract import OperatorBroker
from broker.outcomes import Forward
from broker.redis_broker import RedisBroker
from broker.redis_operator import RedisOperator
from broker.redis_trainer import RedisTrainer
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from broker.trainer_contract import TrainerBroker

ValueT = TypeVar("ValueT")


class Broker(FeederBroker, WorkBroker, VersionBroker, Protocol):
    """The handle of a process that does not train."""


class Trainer(Broker, TrainerBroker, Protocol):
    """The handle of a trainer; what it settles is fenced."""


class Operator(Broker, OperatorBroker, Protocol):
    """The handle of a person."""


class World(Protocol):
    """One run on one server."""

    async def operator(self) -> Operator:
        """A person's handle."""
        ...

    async def connect(self) -> Broker:
        """Another process's handle."""
        ...

    async def trainer(self) -> Trainer:
        """Another trainer's handle."""
        ...

    async def restart(self) -> None:
        """Kill the server; it comes back with its data."""
        ...

    async def flush(self) -> None:
        """The server loses everything."""
        ...


class MemoryWorld:
    def __init__(self) -> None:
        self.server = MemoryServer()

    async def connect(self) -> Broker:
        return MemoryBroker(self.server)

    async def operator(self) -> Operator:
        return MemoryBroker(self.server)

    async def trainer(self) -> Trainer:
        return MemoryBroker(self.server)

    async def restart(self) -> None:
        self.server.restart()

    async def flush(self) -> None:
        self.server.flush()


def is_written(client: redis.Redis) -> bool:
    """Whether the log holds all that was answered: with `everysec` a server holds writes back for up to two seconds
    while the disk is slow with the last ones, and a killed one has lost them.
    """
    found: int = client.info("persistence")["aof_buffer_length"]
    return found == 0


class RedisWorld:
    """A run of its own on the suite's server."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, f"run-{uuid4().hex[:8]}"
        self.handles: list[RedisBroker] = []

    async def connect(self) -> Broker:
        handle = await RedisBroker.connect(embedded_server.address(self.folder), self.run)
        self.handles.append(handle)
        return handle

    async def operator(self) -> Operator:
        handle = await RedisOperator.connect(embedded_server.address(self.folder), self.run)
        self.handles.append(handle)
        return handle

    async def trainer(self) -> Trainer:
        handle = await RedisTrainer.connect(embedded_server.address(self.folder), self.run)
        self.handles.append(handle)
        return handle

    async def restart(self) -> None:
        pid = embedded_server.pid(self.folder)
        assert pid is not None
        with redis.Redis.from_url(embedded_server.address(self.folder)) as client:
            await state(lambda: is_written(client))
        os.kill(pid, signal.SIGKILL)
        await state(lambda: embedded_server.pid(self.folder) is None)
        embedded_server.ensure(self.folder)

    async def flush(self) -> None:
        with redis.Redis.from_url(embedded_server.address(self.folder)) as client:
            client.flushall()

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()


@asynccontextmanager
async def redis_world(folder: Path) -> AsyncGenerator[RedisWorld]:
    world = RedisWorld(folder)
    try:
        yield world
    finally:
        await world.close()


async def state(reached: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it is so; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "the awaited state was not reached"
        await asyncio.sleep(0.005)


async def insist(call: Callable[[], Awaitable[ValueT]], seconds: float = 10.0) -> ValueT:
    """Call again while the server is unavailable, as every role does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await call()
        except Unavailable:
            assert time.monotonic() < deadline, "the server stayed unavailable"
            await asyncio.sleep(0.01)


# ---- what is sent


def version(number: int, epoch: int = 1) -> Announcement:
    return Announcement(
        version=number, epoch=epoch, path=f"versions/{number:06}-e{epoch:03}", digest=f"d{number}-{epoch}"
    )


def group(name: str, kind: Kind = "train", size: int = 2) -> Group:
    prompt = Prompt(
        text=f"prompt of {name}", actions=np.arange(3, dtype=np.int32), size=size, seed=7, task="story", answer="42"
    )
    return Group(id=name, kind=kind, prompt=prompt)


def groups(number: int, start: int = 0, kind: Kind = "train") -> list[Group]:
    return [group(f"story/0/{index}", kind) for index in range(start, start + number)]


def rolled(asked: Group, at: int = 0) -> Group:
    """With three sampled actions per sibling, all from version `at`."""
    size = asked.prompt.size
    rollouts = Rollouts(
        texts=tuple(f"text {sibling}" for sibling in range(size)),
        actions=np.arange(3 * size, dtype=np.int32),
        offsets=np.arange(0, 3 * size + 1, 3, dtype=np.int32),
        logprobs=np.full(3 * size, -0.5, np.float32),
        mask=np.ones(3 * size, np.uint8),
        spans=np.array([(sibling, 0, 3, at) for sibling in range(size)], np.int32),
        finishes=("stop",) * size,
    )
    return asked.with_rollouts(rollouts)


def judged(answered: Group) -> Group:
    """With rewards 0, 1, 2, …"""
    rewards = np.arange(answered.prompt.size, dtype=np.float32)
    return answered.with_scores(Scores(rewards=rewards, parts={"exact_match": rewards}))


def step(
    to: int, deliveries: Iterable[Delivery], epoch: int = 1, parent_epoch: int = 1
) -> tuple[LedgerLine, Announcement]:
    """Line and announcement of the step to version `to` on these groups."""
    announced = version(to, epoch)
    trained = tuple(delivery.entry.group for delivery in deliveries)
    digest = f"{len(trained)} groups from {trained[0]}, {announced.digest}"
    line = LedgerLine(version=to, epoch=epoch, parent_epoch=parent_epoch, digest=digest, groups=trained)
    return line, announced


# ---- what is done first in most stories


async def open_run(
    world: World,
    *,
    epoch: int = 1,
    cap: int = 8,
    groups: int = 2,
    staleness: int = 1,
    eval_cap: int = 4,
    dead_limit: int = 0,
) -> Trainer:
    """A trainer that claimed `epoch` and opened the run at version 0."""
    trainer = await world.trainer()
    await trainer.claim(epoch)
    await trainer.open_run(
        cap=cap,
        groups=groups,
        staleness=staleness,
        eval_cap=eval_cap,
        dead_limit=dead_limit,
        announcement=version(0, epoch),
    )
    return trainer


async def join(world: World) -> Broker:
    """A process that entered the open run."""
    broker = await world.connect()
    await broker.enter(timeout_s=5)
    return broker


async def admit(broker: Broker, number: int) -> list[Group]:
    """So many new groups, entered."""
    cursor = (await broker.books()).cursor
    offered = groups(number, start=cursor)
    admission = await broker.admit(cursor, f"after {cursor + number}", offered)
    assert admission.admitted == number
    return offered


async def pass_on(broker: Broker, reader: str, deliveries: Sequence[Delivery]) -> None:
    """Do the stage's work on these and forward them."""
    work = {PROMPTS: rolled, ROLLOUTS: judged}
    done = [
        (each, Forward(group=work[each.stream](body)))
        for each, body in zip(deliveries, await broker.bodies(deliveries), strict=True)
        if body
    ]
    assert await broker.settle(reader, done) == ["done"] * len(deliveries)


async def take(broker: Broker, stream: str, reader: str, number: int) -> list[Delivery]:
    deliveries = await broker.read(stream, reader, count=number, block_s=1)
    assert len(deliveries) == number
    return deliveries


async def score(world: World, number: int) -> list[Delivery]:
    """So many new groups, admitted, rolled out, judged and read by the trainer."""
    broker = await join(world)
    await admit(broker, number)
    await pass_on(broker, "rollout", await take(broker, PROMPTS, "rollout", number))
    await pass_on(broker, "reward", await take(broker, ROLLOUTS, "reward", number))
    return await take(broker, SCORED, "trainer", number)


async def succeed(world: World, epoch: int) -> Trainer:
    """The next trainer of a run that is open."""
    trainer = await world.trainer()
    await trainer.claim(epoch)
    await trainer.enter(timeout_s=5)
    return trainer
