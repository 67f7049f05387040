"""One version's way from the trainer into an engine, by the product's own parts, each timed where it is called.

For: `weights`. This process is the trainer's side: learner, publication, store, server; a process of its own is the
producer's: engine and weight follower. Not for: training (versions follow each other without a step) or sampling.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import multiprocessing
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch

from benchmarks.bare_loop import learner_of
from benchmarks.part_clock import PartClock
from broker import embedded_server
from broker.cancellation import together
from broker.contract import Announcement, Books
from broker.redis_broker import RedisBroker
from broker.redis_trainer import RedisTrainer
from broker.telemetry import Meter
from broker.weights import VersionStore
from consumers import publication
from consumers.learners.deepspeed import DeepSpeedLearner
from consumers.publication import Publication
from consumers.takeover import line_of
from deploy.run_check import saved_run
from producers import engines, weight_follower
from producers.engines import torch_model
from producers.weight_follower import WeightFollower

LONGEST_S = 180.0
"""From one version's commit until it is served, or until the engine is there."""
CANARY = (4, 6, 4)
"""Sequences, tokens of context and of continuation: those of the run `addition`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the producer's side tells of one version."""

    version: int
    heard_at: float
    served_at: float
    """By the monotonic clock, like every moment here."""
    parts: dict[str, float]
    """Seconds."""


def follow(folder: Path, url: str, reports: Connection) -> None:
    """The producer's process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(WARNING))
    torch.set_num_threads(1)
    asyncio.run(following(folder, url, reports))


async def following(folder: Path, url: str, reports: Connection) -> None:
    """consumes: versions   produces: a report of each   waits for: a commit   unblocked by: the trainer's side, which
    also ends this process
    """
    clock, settings = PartClock(), saved_run(folder)
    for owner, name, part in (
        (weight_follower, "check_tensors", "digest, again"),
        (torch_model.Model, "load", "load"),
        (torch_model, "renew", "put in order"),
        (WeightFollower, "canary", "canary, engine"),
    ):
        clock.over(owner, name, part)
    engine = engines.create("torch", folder / "model", settings.rollout, seed=0)
    clock.taken()
    broker = await RedisBroker.connect(url, folder.name)
    await broker.enter(timeout_s=LONGEST_S)
    store, mode = VersionStore(folder / "store"), settings.rollout.update
    follower = WeightFollower(broker, engine, store, settings.weights, mode=mode, holder="rollout-0", meter=Meter())

    async def report() -> None:
        for version in itertools.count():
            async with follower.changed:
                await follower.changed.wait_for(functools.partial(serves, follower, version))
            now = time.monotonic()
            reports.send(Served(version=version, heard_at=follower.heard_at, served_at=now, parts=clock.taken()))

    await together(report(), follower.follow(), follower.switch())


def serves(follower: WeightFollower, version: int) -> bool:
    return follower.version == version and not follower.loading


@dataclass(slots=True)
class Publisher:
    """The trainer's side of one run folder, with a producer beside it."""

    broker: RedisTrainer
    published: Publication
    clock: PartClock
    reports: Connection
    live: Announcement

    async def version(self) -> dict[str, float]:
        """Publish one and wait until it is served: milliseconds of each part, in their order."""
        self.clock.taken()
        began = time.monotonic()
        await self.write_and_commit()
        mine, committing = self.clock.taken(), self.clock.began["commit"]
        served = await asyncio.to_thread(self.heard, self.live.version)
        await self.published.prune(self.live)
        writing = {part: mine[part] for part in ("export", "canary, trainer", "digest", "records")}
        loading = served.parts | {"load": served.parts["load"] - served.parts["put in order"]}
        parts = {
            **writing,
            "folder": mine["write"] - sum(writing.values()),
            "announce": served.heard_at - committing,
            **loading,
        }
        whole = served.served_at - began
        parts |= {"rest": whole - sum(parts.values()), "publish to served": whole}
        return {f"{name} ms": 1000 * seconds for name, seconds in parts.items()}

    async def write_and_commit(self) -> None:
        """As `Publication.publish`, of a batch without groups."""
        before, epoch = self.live, self.broker.epoch
        books = await self.broker.prepare([])
        manifest = await asyncio.to_thread(
            self.published.write, before.version + 1, epoch, before.epoch, (), seed=0, books=books
        )
        await self.broker.commit(line_of(manifest), manifest.announcement, [])
        self.live = manifest.announcement

    def heard(self, version: int) -> Served:
        """The report of this version. Raises RuntimeError when it does not come."""
        while self.reports.poll(LONGEST_S):
            served: Served = self.reports.recv()
            if served.version == version:
                return served
        raise RuntimeError(f"version {version} was not served within {LONGEST_S:g} s")


@contextmanager
def producing(folder: Path, url: str) -> Generator[Connection]:
    """The producer's process, ended with the block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=follow, args=(folder, url, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.terminate()
        process.join()
        here.close()


def trainer_clock() -> PartClock:
    clock = PartClock()
    for owner, name, part in (
        (Publication, "write", "write"),
        (Publication, "canary", "canary, trainer"),
        (DeepSpeedLearner, "export", "export"),
        (publication, "file_digest", "digest"),
        (publication, "write_batch", "records"),
        (publication, "write_manifest", "records"),
        (RedisTrainer, "commit", "commit"),
    ):
        clock.over(owner, name, part)
    return clock


async def opened(folder: Path, url: str, learner: Any, clock: PartClock, reports: Connection) -> Publisher:
    """A run with version 0 live and served."""
    broker = await RedisTrainer.connect(url, folder.name)
    await broker.claim(1)
    published = Publication(broker, VersionStore(folder / "store"), learner, keep=2, canaries=canaries())
    books = Books(tick=0, cursor=0, cursor_value="", open={}, counts={})
    live = published.write(0, 1, 1, (), seed=0, books=books).announcement
    await broker.open_run(cap=1, groups=1, staleness=0, eval_cap=1, announcement=live)
    publisher = Publisher(broker, published, clock, reports, live)
    await asyncio.to_thread(publisher.heard, 0)
    return publisher


def canaries() -> tuple[tuple[Any, Any], ...]:
    draw, (sequences, context, continuation) = np.random.default_rng(0), CANARY
    ids = draw.integers(3, 64, (sequences, context + continuation)).astype(np.int32)
    return tuple((row[:context], row[context:]) for row in ids)


def ways(
    folder: Path, versions: int, clock: PartClock, beside: Callable[[Any], dict[str, float]]
) -> list[dict[str, float]]:
    """So many versions of the model in `folder`, one after the other, after one that is not counted; `beside(learner)`
    is asked for more figures after each.
    """
    torch.set_num_threads(1)
    with embedded_server.serving(folder / "redis") as url, producing(folder, url) as reports:
        learner = learner_of(folder, saved_run(folder))

        async def all_of_them() -> list[dict[str, float]]:
            publisher = await opened(folder, url, learner, clock, reports)
            await publisher.version()
            found = [await publisher.version() | beside(learner) for _ in range(versions)]
            await publisher.broker.close()
            return found

        found = asyncio.run(all_of_them())
        learner.close()
    return found
