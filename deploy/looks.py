"""Looks at a run from outside, living or not: where its server is, and what the folder knows beside or without it.

For: `status`, `top` and the dashboard. Not for: the launcher, which looks at its own run (`observer`), or judging
(`stuck`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from broker import embedded_server
from broker.redis_broker import RedisBroker
from broker.redis_connection import RedisConnection
from broker.settings import broker_url
from deploy.observer import Observer, saved_snapshot
from deploy.run_folder import launcher_pid
from deploy.run_settings import RunSettings
from deploy.server import EMBEDDED
from deploy.snapshot import PREPARING, Snapshot

KEPT = TypeAdapter(Snapshot)


def live_url(folder: Path, settings: RunSettings) -> str:
    """Where the run's server is; empty while its embedded one is down."""
    url = broker_url(settings.broker)
    if url != EMBEDDED:
        return url
    is_up = embedded_server.pid(folder / "redis") is not None
    return embedded_server.address(folder / "redis") if is_up else ""


class Looks:
    """At a run whose server may go, come back, and move."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.url = ""
        self.observer: Observer | None = None
        """Of the server that was asked last; None while the run has none."""

    async def look(self) -> Snapshot | None:
        """From the server while it has an address, else as the run was last seen; None before it has begun."""
        url = live_url(self.folder, self.settings)
        if url != self.url or self.observer is None:
            await self.close()
            self.url, self.observer = url, self.observer_of(url) if url else None
        if self.observer is not None:
            return completed(await self.observer.look(), self.folder)
        kept = kept_snapshot(self.folder)
        if kept is not None and launcher_pid(self.folder):
            return replace(kept, stage="waiting for the server")
        return kept

    def observer_of(self, url: str) -> Observer:
        """Not yet connected: a server that does not answer is one of the things it sees."""
        broker = RedisBroker(RedisConnection.open(url, self.folder.name))
        return Observer(self.folder, self.settings, broker, started=time.monotonic())

    async def close(self) -> None:
        observer, self.observer = self.observer, None
        if observer is not None:
            await observer.broker.close()


def completed(snapshot: Snapshot, folder: Path) -> Snapshot:
    """With what the launcher saw last, where a single look cannot know: everything while the server is silent, the
    stage before it holds the run, else how busy each process was.
    """
    saved = saved_snapshot(folder)
    if not saved:
        return snapshot
    kept = KEPT.validate_python(saved)
    if snapshot.unanswered:
        silence = ("unanswered", "unanswered_s", "stage", "detail")
        return replace(kept, **{name: getattr(snapshot, name) for name in silence})
    if kept.stage == PREPARING and not snapshot.is_open and launcher_pid(folder):
        return replace(snapshot, stage=kept.stage, detail=kept.detail, share=kept.share, elapsed_s=kept.elapsed_s)
    return with_shares(snapshot, saved)


def with_shares(snapshot: Snapshot, saved: Mapping[str, Any]) -> Snapshot:
    """How busy each process was, from the launcher's newest look where ours was the first: it takes two."""
    known = {(name, process["pid"]): process["busy"] for name, process in saved.get("processes", {}).items()}
    processes = {
        name: process if process.busy is not None else replace(process, busy=known.get((name, process.pid)))
        for name, process in snapshot.processes.items()
    }
    return replace(snapshot, processes=processes)


def kept_snapshot(folder: Path) -> Snapshot | None:
    """The last look that was kept in the run's folder."""
    saved = saved_snapshot(folder)
    if not saved:
        return None
    kept = KEPT.validate_python(saved)
    return replace(kept, live=False, stage=kept.stage if kept.finished else "stopped")
