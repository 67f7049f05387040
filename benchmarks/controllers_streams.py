"""Parallel controllers on one broker: the product's own feeder, consuming loops and trainer's verbs, one process each.

For: one of the two architectures of `benchmarks.controllers`. Not for: measuring. A controller is a process with the
real loop, the real client and the real heartbeat; only its handler is paced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from benchmarks.broker import Offered, announcement, commit
from benchmarks.controllers_load import Load, Moments, Ready, Role, Work
from benchmarks.message_sizes import parts_of
from broker.consume import Consuming, Rules
from broker.handling import Handler
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome
from broker.redis_broker import RedisBroker
from broker.redis_trainer import RedisTrainer
from broker.role_process import beating
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from broker.telemetry import Meter
from consumers.batching import Batch, choose
from producers.feeder import feed
from producers.prompt_groups import PromptGroups

RUN = "bench"
ENTER_S = 60.0
STREAM: dict[Role, str] = {"rollout": PROMPTS, "reward": ROLLOUTS}


async def feeding(url: str, load: Load, ready: Ready, stop: asyncio.Event) -> Moments:
    """Offers prompts; with nothing to do it only looks on."""
    broker, meter = await RedisBroker.connect(url, RUN), Meter()
    await broker.enter(timeout_s=ENTER_S)
    await ready()
    if load.pace == "idle":
        await stop.wait()
    else:
        await feed(broker, cast("PromptGroups", Offered(parts_of(load.body_bytes))), meter=meter, stop=stop)
    await broker.close()
    return Moments()


async def controlling(
    name: str, roles: Sequence[Role], url: str, load: Load, ready: Ready, stop: asyncio.Event
) -> Moments:
    """One controller: a consuming loop per role it has, until told to stop."""
    broker, meter, work = await RedisBroker.connect(url, RUN), Meter(), Work.of(load)
    await broker.enter(timeout_s=ENTER_S)
    loops = [
        Consuming(
            broker,
            STREAM[role],
            f"{name}-{role}",
            handler(role, work),
            Rules(capacity=load.in_hand, drain_s=0),
            meter,
            stop,
        )
        for role in roles
    ]
    async with beating(broker, name, roles[0], meter):
        await ready()
        await asyncio.gather(*(one.run() for one in loops))
    await broker.close()
    return work.moments


def handler(role: Role, work: Work) -> Handler:
    async def rolling_out(delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_rollouts(await work.roll_out(group.id, delivery.entry.floor)))

    async def scoring(delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_scores(await work.score(group.id, group.rollouts)))

    return rolling_out if role == "rollout" else scoring


async def training(url: str, load: Load, ready: Ready, stop: asyncio.Event) -> Moments:
    """The trainer's calls in its order, bodies read, nothing trained in between."""
    broker = await RedisTrainer.connect(url, RUN)
    await broker.claim(1)
    await broker.open_run(
        cap=load.room, groups=load.batch, staleness=load.staleness, eval_cap=1, announcement=announcement(0)
    )
    await ready()
    held: dict[str, Delivery] = {}
    version, waits = 0, True
    while not stop.is_set():
        for one in await broker.read(SCORED, "trainer", count=load.room - len(held), block_s=0.25 if waits else 0):
            held[one.entry.group] = one
        books = await broker.books()
        choice = choose(list(held.values()), books.open, version=version, groups=load.batch, exhausted=False)
        waits = not isinstance(choice, Batch)
        if isinstance(choice, Batch):
            version += 1
            await commit(broker, version, choice)
            for one in choice.deliveries:
                del held[one.entry.group]
    await broker.close()
    return Moments()
