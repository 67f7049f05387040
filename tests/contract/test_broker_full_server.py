"""A server at its memory limit: work that would fill it further waits, work that empties it goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import redis

from broker import embedded_server
from broker.errors import Backpressure
from broker.outcomes import Forward, Recycle, Release, Retire
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from tests.contract.broker_world import (
    RedisWorld,
    admit,
    group,
    groups,
    join,
    open_run,
    pass_on,
    redis_world,
    rolled,
    score,
    step,
    succeed,
    take,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def world(redis_folder: Path) -> AsyncGenerator[RedisWorld]:
    async with redis_world(redis_folder) as on_redis:
        yield on_redis


@contextmanager
def full(world: RedisWorld) -> Generator[None]:
    """As if every byte the server may use were taken."""
    with redis.Redis.from_url(embedded_server.address(world.folder)) as client:
        limit = client.config_get("maxmemory")["maxmemory"]
        assert limit
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", limit)


async def test_nothing_enters_a_full_server_and_what_was_refused_enters_later(world: RedisWorld) -> None:
    await open_run(world)
    feeder = await join(world)
    await admit(feeder, 1)
    asked = await take(feeder, PROMPTS, "w", 1)
    done = [(asked[0], Forward(group=rolled(group("story/0/0"))))]
    with full(world):
        with pytest.raises(Backpressure):
            await feeder.admit(1, "two", groups(1, start=1))
        with pytest.raises(Backpressure):
            await feeder.settle("w", done)
    assert await feeder.backlog() == {PROMPTS: 1, ROLLOUTS: 0, SCORED: 0}
    assert await feeder.settle("w", done) == ["done"]
    assert (await feeder.admit(1, "two", groups(1, start=1))).admitted == 1


async def test_a_full_server_is_emptied_by_everybody_downstream(world: RedisWorld) -> None:
    trainer = await open_run(world)
    scored = await score(world, 3)
    broker = await join(world)
    await admit(broker, 3)
    asked = await take(broker, PROMPTS, "w", 3)
    await pass_on(broker, "w", asked[:1])
    with full(world):
        answered = await take(broker, ROLLOUTS, "r", 1)
        await pass_on(broker, "r", answered)
        await broker.settle("w", [(asked[1], Release(reason="drain")), (asked[2], Retire(reason="no_signal"))])
        await broker.beat("reward-0", {"role": "reward", "progress": 1})
        await broker.hold(0, "rollout-0", 60)
        await trainer.prepare(scored[:2])
        await trainer.commit(*step(1, scored[:2]), scored[:2], evaluate=1, hold_s=60)
        await trainer.settle("trainer", [(scored[2], Recycle(reason="late"))])
        newer = await succeed(world, 2)
        adopted = await take(newer, SCORED, "trainer-2", 1)
        await newer.commit(*step(2, adopted, epoch=2), adopted)
        await newer.finish("done")
    books = await trainer.books()
    assert (books.count("train.trained"), books.count("train.retired.no_signal"), len(books.open)) == (3, 1, 2)
