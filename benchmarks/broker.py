"""Groups a second through the broker, from admission to the ledger: `python -m benchmarks.broker`.

The real loops on a real server with its append-only file on, each in a process of its own: the feeder, two consuming
loops (rollout and reward) that answer at once, and the trainer's verbs. So what is measured is transport alone: codec,
client, scripts, server. `saturated` keeps the open set full; `alone` has one group open at a time, and its latency is
what three hops cost.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from math import inf
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, cast

import structlog

from benchmarks.message_sizes import Parts, parts_of
from benchmarks.result import Result, circumstances, gathered
from benchmarks.server_use import server_use
from broker import embedded_server
from broker.admission import cap
from broker.consume import Consuming, Rules
from broker.contract import Announcement, LedgerLine
from broker.handling import Handler
from broker.messages import Delivery, Group
from broker.outcomes import Forward, Outcome
from broker.redis_broker import RedisBroker
from broker.redis_trainer import RedisTrainer
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from broker.telemetry import Meter
from consumers.batching import Batch, choose
from producers.feeder import feed
from producers.prompt_groups import PromptGroups

RUN = "bench"
READ = 32
"""Deliveries a consuming loop holds at once."""
DEADLINE_S = 300
"""Of one case; a process that overruns it ends, and the benchmark with it."""
ROLES = ("feeder", "rollout", "reward", "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What goes through."""

    body_bytes: int
    """Of a whole group: prompt, rollouts and scores."""
    total: int
    """Groups; a multiple of `batch`."""
    batch: int = 64
    """B, groups per version."""
    staleness: int = 3
    """η; (η+1)·B groups are open at most."""


CASES = {
    "1 KB, saturated": Load(body_bytes=1 << 10, total=8192),
    "32 KB, saturated": Load(body_bytes=32 << 10, total=4096),
    "256 KB, saturated": Load(body_bytes=256 << 10, total=1024),
    "1 KB, alone": Load(body_bytes=1 << 10, total=300, batch=1, staleness=0),
    "32 KB, alone": Load(body_bytes=32 << 10, total=300, batch=1, staleness=0),
    "256 KB, alone": Load(body_bytes=256 << 10, total=200, batch=1, staleness=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What one role's process reports."""

    cpu_s: float
    moments: Mapping[str, float] = field(default_factory=dict[str, float])
    """Group → monotonic seconds, the same clock in every process of a machine."""


# ---- roles


@dataclass(slots=True)
class Offered:
    """Prompts all alike, and when each group was last offered: that time it entered."""

    parts: Parts
    end: float = inf
    """How many there are: where processor time is counted, no group may be left on its way."""
    moments: dict[str, float] = field(default_factory=dict[str, float])

    def training(self, cursor: int, number: int) -> list[Group]:
        ids = [f"bench/0/{index}" for index in range(cursor, int(min(cursor + number, self.end)))]
        self.moments |= dict.fromkeys(ids, time.monotonic())
        return [Group(id=name, kind="train", prompt=self.parts.prompt) for name in ids]

    def cursor_value(self, cursor: int) -> str:
        return str(cursor)

    def check_cursor(self, value: str) -> None:
        """Every cursor is ours."""


async def feeding(url: str, load: Load) -> Mapping[str, float]:
    broker, source = await RedisBroker.connect(url, RUN), Offered(parts_of(load.body_bytes), load.total)
    await feed(broker, cast("PromptGroups", source), meter=Meter(), stop=asyncio.Event())
    await broker.close()
    return source.moments


async def rolling_out(url: str, load: Load) -> Mapping[str, float]:
    rollouts = parts_of(load.body_bytes).rollouts

    async def handle(delivery: Delivery, group: Group) -> Outcome:
        spans = rollouts.spans.copy()
        spans[:, 3] = delivery.entry.floor
        return Forward(group=group.with_rollouts(replace(rollouts, spans=spans)))

    return await consuming(url, PROMPTS, handle)


async def scoring(url: str, load: Load) -> Mapping[str, float]:
    scores = parts_of(load.body_bytes).scores

    async def handle(delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_scores(scores))

    return await consuming(url, ROLLOUTS, handle)


async def consuming(url: str, stream: str, handle: Handler) -> Mapping[str, float]:
    broker, stop, rules = await RedisBroker.connect(url, RUN), asyncio.Event(), Rules(capacity=READ)
    await broker.enter(timeout_s=DEADLINE_S)
    await Consuming(broker, stream, stream, handle, rules, Meter(), stop).run()
    await broker.close()
    return {}


async def training(url: str, load: Load) -> Mapping[str, float]:
    """The trainer's calls in its order (`consumers.trainer_consumer`), with nothing trained in between."""
    broker = await RedisTrainer.connect(url, RUN)
    await broker.claim(1)
    room = cap(load.batch, load.staleness)
    await broker.open_run(
        cap=room, groups=load.batch, staleness=load.staleness, eval_cap=1, announcement=announcement(0)
    )
    held: dict[str, Delivery] = {}
    moments: dict[str, float] = {}
    version = 0
    while len(moments) < load.total:
        block_s = 0 if len(held) >= load.batch else 0.25
        for one in await broker.read(SCORED, "trainer", count=room - len(held), block_s=block_s):
            held[one.entry.group] = one
        books = await broker.books()
        choice = choose(list(held.values()), books.open, version=version, groups=load.batch, exhausted=False)
        if isinstance(choice, Batch):
            version += 1
            await commit(broker, version, choice)
            for one in choice.deliveries:
                del held[one.entry.group]
                moments[one.entry.group] = time.monotonic()
    await broker.finish("all groups are through")
    await broker.close()
    return moments


async def commit(broker: RedisTrainer, version: int, batch: Batch) -> None:
    groups = await broker.bodies(batch.deliveries)
    if not all(group and group.scores for group in groups):
        raise RuntimeError(f"groups of version {version} came without their scores")
    await broker.prepare(batch.deliveries)
    names = tuple(one.entry.group for one in batch.deliveries)
    line = LedgerLine(version=version, epoch=1, parent_epoch=1, digest=f"d{version}", groups=names)
    await broker.commit(line, announcement(version), batch.deliveries)


def announcement(version: int) -> Announcement:
    return Announcement(version=version, epoch=1, path=f"versions/{version:06}-e001", digest=f"d{version}")


WORK: dict[str, Callable[[str, Load], Coroutine[Any, Any, Mapping[str, float]]]] = {
    "feeder": feeding,
    "rollout": rolling_out,
    "reward": scoring,
    "trainer": training,
}


def work(role: str, url: str, load: Load) -> Worked:
    """One role from its beginning to the run's end; runs in a process of its own."""

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.alarm(DEADLINE_S)
    began = time.process_time()
    moments = asyncio.run(WORK[role](url, load))
    signal.alarm(0)
    return Worked(cpu_s=time.process_time() - began, moments=moments)


# ---- measuring


def measured(load: Load, pool: ProcessPoolExecutor) -> dict[str, float]:
    """One stream of groups through a new server."""
    with tempfile.TemporaryDirectory() as name, embedded_server.serving(Path(name)) as url:
        before = server_use(url)
        waiting = {pool.submit(work, role, url, load): role for role in ROLES}
        worked = {waiting[done]: result_of(done) for done in as_completed(waiting)}
        server = server_use(url) - before
    offered, committed = worked["feeder"].moments, worked["trainer"].moments
    latencies = sorted(1e3 * (committed[group] - offered[group]) for group in committed)
    figures = {
        "groups_per_s": load.total / (max(committed.values()) - min(offered.values())),
        "latency_p50_ms": statistics.median(latencies),
        "latency_p99_ms": latencies[int(0.99 * len(latencies))],
        "server_us_per_group": 1e6 * server.cpu_s / load.total,
        "server_in_bytes_per_group": server.in_bytes / load.total,
        "server_out_bytes_per_group": server.out_bytes / load.total,
        **{f"{role}_us_per_group": 1e6 * one.cpu_s / load.total for role, one in worked.items()},
    }
    figures["clients_us_per_group"] = sum(figures[f"{role}_us_per_group"] for role in ROLES)
    figures["cpu_us_per_group"] = figures["server_us_per_group"] + figures["clients_us_per_group"]
    return {name: round(value, 1) for name, value in figures.items()}


def result_of(done: Future[Worked]) -> Worked:
    """What a role reports; when one fails the others, which would wait for it, are ended."""
    try:
        return done.result()
    except BaseException:
        for process in active_children():
            process.terminate()
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    options = parser.parse_args()
    before = circumstances()
    samples: dict[str, list[dict[str, float]]] = {case: [] for case in options.cases}
    with ProcessPoolExecutor(len(ROLES), mp_context=get_context("spawn")) as pool:
        measured(Load(body_bytes=1 << 10, total=256), pool)  # processes start, libraries load
        for _ in range(options.repeats):
            for case, found in samples.items():
                found.append(measured(CASES[case], pool))
                print(case, found[-1], flush=True)
    result = Result(
        name="broker",
        measures="three hops through the broker: admitted, rolled out, scored, committed; bodies by size",
        circumstances=before,
        settings={
            "read": READ,
            "appendfsync": "everysec",
            "repeats": options.repeats,
            "cases": {case: asdict(CASES[case]) for case in options.cases},
        },
        samples={case: gathered(found) for case, found in samples.items()},
    )
    result.save("; ".join(headline(result, case) for case in options.cases))


def headline(result: Result, case: str) -> str:
    if CASES[case].batch == 1:
        p50, p99 = result.median(case, "latency_p50_ms"), result.median(case, "latency_p99_ms")
        return f"{case}: {p50:.1f} ms (p99 {p99:.1f})"
    speed, cpu_us = result.median(case, "groups_per_s"), result.median(case, "cpu_us_per_group")
    return f"{case}: {speed:,.0f} groups/s ({cpu_us:,.0f} µs of all processors each)"


if __name__ == "__main__":
    main()
