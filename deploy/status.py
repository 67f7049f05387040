"""`tidemill status`: one look at a run, living or not.

For: the newest facts, without disturbing anything. Not for: watching (`top`), drawing (`screen`) or judging (`stuck`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
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
from deploy.stuck import findings


def current_snapshot(folder: Path, settings: RunSettings) -> Snapshot | None:
    """From the server when it runs, else the last one that was kept, else None."""
    url = live_url(folder, settings)
    return asyncio.run(live_snapshot(folder, settings, url)) if url else kept_snapshot(folder)


def live_url(folder: Path, settings: RunSettings) -> str:
    """Where the run's server is; empty while its embedded one is down."""
    url = broker_url(settings.broker)
    if url != EMBEDDED:
        return url
    is_up = embedded_server.pid(folder / "redis") is not None
    return embedded_server.address(folder / "redis") if is_up else ""


def observer_of(folder: Path, settings: RunSettings, url: str) -> Observer:
    """Not yet connected: a server that does not answer is one of the things it sees."""
    return Observer(folder, settings, RedisBroker(RedisConnection.open(url, folder.name)), started=time.monotonic())


async def live_snapshot(folder: Path, settings: RunSettings, url: str) -> Snapshot:
    observer = observer_of(folder, settings, url)
    try:
        snapshot = await observer.look()
    finally:
        await observer.broker.close()
    return completed(snapshot, folder)


def completed(snapshot: Snapshot, folder: Path) -> Snapshot:
    """With what the launcher saw last, where a single look cannot know: everything while the server is silent, the
    stage before it holds the run, else how busy each process was.
    """
    saved = saved_snapshot(folder)
    if not saved:
        return snapshot
    kept = TypeAdapter(Snapshot).validate_python(saved)
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
    kept = TypeAdapter(Snapshot).validate_python(saved)
    return replace(kept, live=False, stage=kept.stage if kept.finished else "stopped")


def as_json(folder: Path, snapshot: Snapshot | None) -> dict[str, Any]:
    """For programs; `docs/operations.md` tells the fields."""
    facts: dict[str, Any] = {"stuck": []}
    if snapshot is not None:
        facts = {
            **asdict(snapshot),
            "steps": list(snapshot.steps),
            "backlog": snapshot.backlog,
            "books": snapshot.books(),
            "staleness": {
                "mean": snapshot.staleness_mean,
                "max": snapshot.staleness_max,
                "bound": snapshot.goal.staleness,
            },
            "stuck": [asdict(finding) for finding in findings(snapshot)],
        }
    return {**facts, "run": folder.name, "launcher_pid": launcher_pid(folder)}
