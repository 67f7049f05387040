"""Follows the live weight version and opens or closes the gate through which groups reach the engine.

For: when to load which version, and the canary. Not for: sampling, or what a version is (`broker.weights`).

Update modes: `between_groups` lets running groups finish under their version while new ones wait at the gate; `drain`
also stops reading, so that everything in hand ends under the old version; `in_flight` loads at once, the engine
recomputes its cache, and later actions carry the new version in their spans. Evaluation groups are sampled under
exactly their version, in every mode: the engine serves it while they last, older or not, and then returns to the
newest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Literal

import numpy as np
import structlog
from numpy.typing import NDArray
from structlog.contextvars import bound_contextvars

from broker.contract import Announcement, VersionBroker
from broker.errors import Broken, Poison
from broker.measures import CANARIES, LAG, LOADED_BYTES, LOADING, SYNCING
from broker.messages import Actions, Entry
from broker.settings import WeightsSection
from broker.telemetry import Meter
from broker.weights import TENSORS, Canary, VersionStore, check_tensors, read_manifest
from producers.engines.base import Continuation, Engine

log = structlog.get_logger()

Mode = Literal["between_groups", "in_flight", "drain"]


def wanted_version(newest: int, measured: Collection[int]) -> int:
    """The version to serve next: one that evaluation groups in hand ask for, oldest first, else the newest."""
    return min(measured, default=newest)


class WeightFollower:
    """The gate of one engine."""

    def __init__(
        self,
        broker: VersionBroker,
        engine: Engine,
        store: VersionStore,
        settings: WeightsSection,
        *,
        mode: Mode,
        holder: str,
        meter: Meter,
    ) -> None:
        self.broker = broker
        self.engine = engine
        self.store = store
        self.settings = settings
        self.mode: Mode = mode
        self.holder = f"{holder}.{os.getpid()}"
        self.meter = meter
        self.newest = -1
        self.heard_at = 0.0
        """When it heard of the newest, by the monotonic clock."""
        self.version = -1
        self.synced = -1
        """The newest version that was ever served."""
        self.running = 0
        self.running_eval = 0
        self.waiting: list[Entry] = []
        self.measured: Counter[int] = Counter()
        self.gone: set[int] = set()
        self.loading = False
        self.changed = asyncio.Condition()
        """Other weights are served, or will be served next: groups at the gate wait for it, and all of them wake."""
        self.stirred = asyncio.Event()
        """What `switch` waits for: anything that may let the engine take other weights."""

    def may_read(self) -> bool:
        """False before any version is served, for others may serve one already, and while a drain is due: nothing new
        until the newest version is served.
        """
        return self.version >= 0 and (self.mode != "drain" or self.version >= self.newest)

    @contextlib.asynccontextmanager
    async def serving(self, entry: Entry) -> AsyncGenerator[None]:
        """The engine serves weights this group may be sampled under, and keeps them (or newer ones) meanwhile.

        Raises Poison when an evaluation group's version is gone.
        """
        measured = entry.kind == "eval"
        self.measured[entry.floor] += measured
        try:
            await self.a_turn(entry)
            self.running += 1
            self.running_eval += measured
            try:
                yield
            finally:
                self.running -= 1
                self.running_eval -= measured
        finally:
            self.stirred.set()
            self.measured[entry.floor] -= measured
            if measured and not self.measured[entry.floor]:
                async with self.changed:
                    self.changed.notify_all()

    async def a_turn(self, entry: Entry) -> None:
        """consumes: a group at the gate   produces: its turn   waits for: the right weights   unblocked by: `switch`"""
        self.waiting.append(entry)
        self.stirred.set()
        try:
            async with self.changed:
                await self.changed.wait_for(lambda: self.may_start(entry))
        finally:
            self.waiting.remove(entry)
            self.stirred.set()
        if entry.kind == "eval" and entry.floor in self.gone:
            raise Poison(
                f"version {entry.floor} is gone from the store, so it can no longer be measured; its evaluation group "
                "is buried"
            )

    def may_start(self, entry: Entry) -> bool:
        """Whether the weights served now are right for it, and will not be taken away before it had its turn."""
        if self.loading:
            return False
        if entry.kind == "eval":
            return entry.floor in self.gone or self.version == entry.floor
        draining = self.mode == "drain" and self.target() > self.version
        return self.version >= entry.floor and (draining or self.target() == self.version)

    def target(self) -> int:
        """The version to serve: what evaluation groups in hand ask for, else the newest."""
        measured = [version for version, groups in self.measured.items() if groups > 0 and version not in self.gone]
        return wanted_version(self.newest, measured)

    def may_switch(self) -> bool:
        """Whether the engine may take other weights now: nobody runs, or nobody minds, and nobody is to go first."""
        if self.running:
            return self.mode == "in_flight" and self.running_eval == 0 and self.target() > self.version
        return not any(self.may_start(entry) for entry in self.waiting)

    async def follow(self) -> None:
        """consumes: announcements   produces: the newest live version
        waits for: a commit   unblocked by: the trainer
        """
        while True:
            found = await self.broker.wait_version(self.newest, block_s=1.0)
            if found:
                async with self.changed:
                    self.newest, self.heard_at = found.version, time.monotonic()
                    self.count_lag()
                    self.stirred.set()
                    self.changed.notify_all()

    async def switch(self) -> None:
        """consumes: the wanted version   produces: an engine that serves it
        waits for: running groups, as the mode says   unblocked by: the last of them
        """
        while True:
            target = self.target()
            if self.newest < 0 or target == self.version or not self.may_switch():
                await self.stirred.wait()
                self.stirred.clear()
                continue
            self.loading = True
            await self.load(target)
            async with self.changed:
                self.loading = False
                self.changed.notify_all()

    async def load(self, version: int) -> None:
        """Hold, verify, load, canary, report; a version that is gone is remembered as such."""
        announcement = await self.broker.hold(version, self.holder, self.settings.hold_s)
        if announcement is None:
            await self.lost(version)
            return
        folder, began = self.store.folder(announcement.path), time.monotonic()
        with bound_contextvars(version=version):
            await asyncio.to_thread(check_tensors, folder, announcement.digest)
            await self.engine.load(folder, version)
            await self.canary(announcement)
        self.meter.metrics.observe(LOADING, time.monotonic() - began)
        self.meter.metrics.count(LOADED_BYTES, (folder / TENSORS).stat().st_size)
        if self.version >= 0 and self.version != version:
            await self.broker.drop_hold(self.version, self.holder)
        self.version = self.meter.version = version
        self.count_lag()
        self.count_sync()
        log.info("serving", version=version)

    def count_sync(self) -> None:
        """Once for each version, and not for one that was overtaken meanwhile: that engine is late for the next."""
        if self.version == self.newest > self.synced:
            if self.synced >= 0:  # before that it was started
                self.meter.synced_s = time.monotonic() - self.heard_at
                self.meter.metrics.observe(SYNCING, self.meter.synced_s)
            self.synced = self.version

    def count_lag(self) -> None:
        if self.version >= 0:
            self.meter.metrics.put(LAG, max(0, self.newest - self.version))

    async def lost(self, version: int) -> None:
        """An old version may be gone; the newest one was overtaken, so the next is asked for."""
        if version < self.newest:
            self.gone.add(version)
            return
        live = (await self.broker.look()).live
        if live and live.version != self.newest:
            self.newest, self.heard_at = live.version, time.monotonic()
        if live and live.version == version:
            raise Broken(
                f"version {version} is live but may not be served; stopping; `tidemill inspect weights` shows why"
            )

    async def canary(self, announcement: Announcement) -> None:
        """The engine's log-probs must be the trainer's. Raises Broken after a second load fails too (the slot is
        parked).
        """
        expected = read_manifest(self.store.folder(announcement.path)).canary
        if not self.settings.canary or not expected.logprobs:
            return
        difference = await self.measure(expected)
        if difference > self.settings.canary_tolerance:
            self.meter.metrics.count(CANARIES)
            log.warning("canary failed, loading again", version=announcement.version, difference=difference)
            await self.engine.load(self.store.folder(announcement.path), announcement.version)
            difference = await self.measure(expected)
        if difference > self.settings.canary_tolerance:
            raise Broken(
                f"version {announcement.version}: the engine's log-probs differ from the trainer's by "
                f"{difference:.2e} nats "
                f"(allowed {self.settings.canary_tolerance:g}), twice; this slot stops sampling; the weights did not "
                "arrive, or the engine computes something else (for bfloat16 raise weights.canary_tolerance to 1, or "
                "train in float32)"
            )

    async def measure(self, expected: Canary) -> float:
        sequences = [
            Continuation(context=actions_of(context), continuation=actions_of(continuation))
            for context, continuation in zip(expected.contexts, expected.continuations, strict=True)
        ]
        found = await self.engine.logprobs(sequences)
        return largest_difference(found, expected.logprobs)

    async def keep_hold(self) -> None:
        """consumes: time   produces: a fresh claim on the version served   waits for: a third of it   unblocked by:
        time
        """
        while True:
            await asyncio.sleep(self.settings.hold_s / 3)
            if self.version >= 0:
                await self.broker.hold(self.version, self.holder, self.settings.hold_s)


def actions_of(row: Sequence[float] | Sequence[Sequence[float]]) -> Actions:
    values = np.asarray(row)
    return values.astype(np.int32) if values.dtype.kind == "i" else values.astype(np.float32)


def largest_difference(found: Sequence[NDArray[np.float32]], expected: Sequence[Sequence[float]]) -> float:
    return max(
        (float(np.abs(a - np.asarray(b, np.float32)).max()) for a, b in zip(found, expected, strict=True) if len(b)),
        default=0.0,
    )
