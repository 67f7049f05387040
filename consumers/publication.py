"""One step's result becomes a version: books read, folder written whole, ledger committed; and checkpoints beside it.

For: the order of writes that makes training happen exactly once. Not for: choosing the batch or training it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from broker.contract import Announcement, Books
from broker.messages import Actions, Delivery, Group
from broker.pruning import prune
from broker.redis_trainer import RedisTrainer
from broker.weights import (
    TENSORS,
    Canary,
    Manifest,
    VersionStore,
    file_digest,
    packed_batch,
    version_path,
    write_batch,
    write_manifest,
    write_whole,
)
from consumers.learners.base import Learner, Write
from consumers.takeover import line_of

log = structlog.get_logger()

CANARY_SEQUENCES = 4
"""Sequences compared after each load: enough to notice other weights, cheap enough for every version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A version as the learner left it: it may train on while this waits to be published."""

    write: Write
    canary: Canary


@dataclass(slots=True)
class Publication:
    """Writes versions and checkpoints of one run."""

    broker: RedisTrainer
    store: VersionStore
    learner: Learner
    keep: int
    """Versions whose tensors stay although nobody holds them."""
    canaries: tuple[tuple[Actions, Actions], ...] = ()
    written: Manifest | None = None
    """The version that was written last."""
    written_bytes: int = 0
    """Of tensors, over all versions written here."""

    def remember(self, groups: Sequence[Group]) -> None:
        """The first rollouts seen become the canary's sequences."""
        if not self.canaries:
            chosen = [group for group in groups if group.rollouts and len(group.rollouts.logprobs)][:CANARY_SEQUENCES]
            self.canaries = tuple(
                (one.prompt.actions, one.rollouts.actions[one.rollouts.sibling(0)]) for one in chosen if one.rollouts
            )

    def canary(self) -> Canary:
        if not self.canaries:
            return Canary()
        contexts, continuations = [c for c, _ in self.canaries], [c for _, c in self.canaries]
        logprobs = self.learner.logprobs(contexts, continuations)
        return Canary(contexts=rows(contexts), continuations=rows(continuations), logprobs=rows(logprobs))

    def draft(self) -> Draft:
        """The learner's weights as they are now."""
        return Draft(write=self.learner.export(), canary=self.canary())

    def write(
        self,
        version: int,
        epoch: int,
        parent_epoch: int,
        groups: Sequence[Group],
        *,
        seed: int,
        books: Books,
        draft: Draft | None = None,
        packed: Sequence[bytes] | None = None,
    ) -> Manifest:
        """The version's folder, whole and durable (its tensors are not fsynced: replay rebuilds them), from a draft or
        from the learner as it is now. `packed`: the groups as a batch file holds them, if that was done before.
        """
        draft = draft or self.draft()
        with self.store.writing(version_path(version, epoch)) as folder:
            draft.write(folder)
            self.written_bytes += (folder / TENSORS).stat().st_size
            write_batch(folder, packed_batch(groups) if packed is None else packed)
            manifest = Manifest(
                version=version,
                epoch=epoch,
                parent_epoch=parent_epoch,
                groups=tuple(group.id for group in groups),
                seed=seed,
                digest=file_digest(folder / TENSORS),
                books=books,
                canary=draft.canary,
            )
            write_manifest(folder, manifest)
        return manifest

    async def publish(
        self,
        parent: Announcement,
        deliveries: Sequence[Delivery],
        groups: Sequence[Group],
        *,
        seed: int,
        draft: Draft,
        packed: Sequence[bytes],
        evaluate: int = 0,
        hold_s: float = 0,
    ) -> Manifest:
        """Prepare, write, commit; what was written by a call that could not commit is committed by the next. Raises
        Fenced or Broken (the batch was not open any more) without having published.
        """
        version, epoch = parent.version + 1, self.broker.epoch
        manifest = self.written
        if manifest is None or manifest.path != version_path(version, epoch):
            books = await self.broker.prepare(deliveries)
            manifest = await asyncio.to_thread(
                self.write, version, epoch, parent.epoch, groups, seed=seed, books=books, draft=draft, packed=packed
            )
            self.written = manifest
        await self.broker.commit(line_of(manifest), manifest.announcement, deliveries, evaluate=evaluate, hold_s=hold_s)
        return manifest

    def checkpoint(self, live: Announcement) -> None:
        """Save the learner as it is after `live`, unless somebody has."""
        if self.store.folder(checkpoint_path(live)).is_dir():
            return
        with self.store.writing(checkpoint_path(live)) as folder:
            self.learner.save(folder)
            write_whole(folder / "checkpoint.json", json.dumps({"version": live.version, "epoch": live.epoch}).encode())
            fsync_tree(folder)

    async def prune(self, live: Announcement) -> None:
        """Old checkpoints, batches no checkpoint needs, and tensors nobody may ask for."""
        await prune(self.broker, self.store, live, keep=self.keep)


def checkpoint_path(live: Announcement) -> str:
    return f"checkpoints/{live.version:06d}-e{live.epoch:03d}"


def rows(arrays: Sequence[NDArray[Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(np.asarray(array).tolist()) for array in arrays)


def fsync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
