"""`tidemill status`: one look at a run, living or not.

For: the newest facts, without disturbing anything. Not for: watching (the launcher's own screen does).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from broker import embedded_server
from broker.redis_broker import RedisBroker
from broker.settings import broker_url
from deploy.observer import Observer, saved_snapshot
from deploy.run_folder import launcher_pid
from deploy.run_settings import RunSettings
from deploy.server import EMBEDDED
from deploy.snapshot import Goal, Process, Snapshot


def current_snapshot(folder: Path, settings: RunSettings) -> Snapshot | None:
    """From the server when it runs, else the last one that was kept, else None."""
    url = broker_url(settings.broker)
    if url != EMBEDDED or embedded_server.pid(folder / "redis") is not None:
        address = url if url != EMBEDDED else embedded_server.address(folder / "redis")
        return asyncio.run(live_snapshot(folder, settings, address))
    saved = saved_snapshot(folder)
    return snapshot_from(saved) if saved else None


async def live_snapshot(folder: Path, settings: RunSettings, url: str) -> Snapshot:
    broker = await RedisBroker.connect(url, folder.name)
    try:
        observer = Observer(folder, settings, broker, started=time.monotonic())
        return with_shares(await observer.look(), saved_snapshot(folder))
    finally:
        await broker.close()


def with_shares(snapshot: Snapshot, saved: dict[str, Any]) -> Snapshot:
    """How busy each process was, from the launcher's newest look: it takes two reports, and one look has one."""
    known = {(name, process["pid"]): process["busy"] for name, process in saved.get("processes", {}).items()}
    processes = {
        name: replace(process, busy=known.get((name, process.pid))) for name, process in snapshot.processes.items()
    }
    return replace(snapshot, processes=processes)


def snapshot_from(saved: dict[str, Any]) -> Snapshot:
    """The value again, from what was kept as JSON."""
    names = Snapshot.__dataclass_fields__
    values = {name: value for name, value in saved.items() if name in names}
    values["goal"] = Goal(**values["goal"])
    values["processes"] = {name: Process(**process) for name, process in values["processes"].items()}
    return Snapshot(**values)


def as_json(folder: Path, snapshot: Snapshot | None) -> dict[str, Any]:
    facts = {} if snapshot is None else {**asdict(snapshot), "steps": list(snapshot.steps), "books": snapshot.books()}
    return {**facts, "run": folder.name, "launcher_pid": launcher_pid(folder)}
