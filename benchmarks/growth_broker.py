"""What groups of one size ask of the broker: bytes on the server, and processor time from admission to the ledger.

For: `growth`. Not for: how many groups a second go through (`broker`).

One client does the calls of all roles in turn, 32 groups at a time, on a server with its append-only file on.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import redis

from benchmarks.broker import READ, RUN, announcement, commit
from benchmarks.growth_sizes import Size, groups_of
from broker import codec, embedded_server
from broker.messages import Delivery, Group
from broker.outcomes import Forward
from broker.redis_trainer import RedisTrainer
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from consumers.batching import Batch

WAIT_S = 10.0
ROUNDS = 8
"""Batches through one server; the first warms up."""


def body_bytes(size: Size) -> int:
    """Of a whole group as the server is given it, names included."""
    group = groups_of(replace(size, groups=1))[0]
    assert group.rollouts is not None
    assert group.scores is not None
    fields = codec.encode_prompt(group) | codec.encode_rollouts(group.rollouts) | codec.encode_scores(group.scores)
    return codec.size_of(fields)


def broker_figures(size: Size) -> dict[str, list[float]]:
    """Per group, one number a batch."""
    with tempfile.TemporaryDirectory() as name, embedded_server.serving(Path(name)) as url:
        found = asyncio.run(batches(url, groups_of(size)))
    return {
        "bytes on the server": [round(held / size.groups) for held, _ in found],
        "processor (µs)": [round(1e6 * spent / size.groups, 1) for _, spent in found],
    }


async def batches(url: str, groups: Sequence[Group]) -> list[tuple[int, float]]:
    """(bytes, processor seconds of server and client) of each batch but the first."""
    broker = await RedisTrainer.connect(url, RUN)
    await broker.claim(1)
    size = len(groups)
    await broker.open_run(cap=size, groups=size, staleness=0, eval_cap=1, announcement=announcement(0))
    found = [await one_batch(broker, url, groups, number) for number in range(ROUNDS)]
    await broker.close()
    return found[1:]


async def one_batch(broker: RedisTrainer, url: str, groups: Sequence[Group], number: int) -> tuple[int, float]:
    whole = {f"{group.id}/{number}": of_version(group, number) for group in groups}
    empty = used_bytes(url)
    began = used_s(url)
    await admit(broker, whole, number * len(groups))
    await forward(broker, PROMPTS, len(groups), lambda group: replace(group, rollouts=whole[group.id].rollouts))
    await forward(broker, ROLLOUTS, len(groups), lambda group: replace(group, scores=whole[group.id].scores))
    spent = used_s(url) - began
    held = used_bytes(url) - empty
    began = used_s(url)
    deliveries: list[Delivery] = []
    while len(deliveries) < len(groups):
        deliveries += await read(broker, SCORED, "trainer")
    await commit(broker, number + 1, Batch(deliveries=tuple(deliveries), reason="all there are"))
    return held, spent + used_s(url) - began


def of_version(group: Group, version: int) -> Group:
    """The same group, sampled by another version."""
    assert group.rollouts is not None
    spans = group.rollouts.spans.copy()
    spans[:, 3] = version
    return replace(group, id=f"{group.id}/{version}", rollouts=replace(group.rollouts, spans=spans))


async def admit(broker: RedisTrainer, whole: dict[str, Group], cursor: int) -> None:
    prompts = [replace(group, rollouts=None, scores=None) for group in whole.values()]
    for at in range(0, len(prompts), READ):
        await broker.admit(cursor + at, "here", prompts[at : at + READ])


async def forward(broker: RedisTrainer, stream: str, number: int, added: Callable[[Group], Group]) -> None:
    """Each group on to the next stream, with what its stage adds."""
    while number > 0:
        deliveries = await read(broker, stream, stream)
        groups = await broker.bodies(deliveries)
        settled = [(one, Forward(group=added(group))) for one, group in zip(deliveries, groups, strict=True) if group]
        verdicts = await broker.settle(stream, settled)
        if len(settled) < len(deliveries) or set(verdicts) != {"done"}:
            raise RuntimeError(f"{stream}: {len(deliveries)} groups read, settled as {verdicts}")
        number -= len(deliveries)


async def read(broker: RedisTrainer, stream: str, reader: str) -> list[Delivery]:
    deliveries = await broker.read(stream, reader, count=READ, block_s=WAIT_S)
    if not deliveries:
        raise RuntimeError(f"{stream} held nothing for {WAIT_S:g} s")
    return deliveries


def used_s(url: str) -> float:
    """Processor seconds of the server and of this process; the system's table of processes counts in hundredths."""
    with redis.Redis.from_url(url) as client:
        server: dict[str, float] = client.info("cpu")
    return server["used_cpu_user"] + server["used_cpu_sys"] + time.process_time()


def used_bytes(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return client.info("memory")["used_memory"]
