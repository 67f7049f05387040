"""`tidemill status`: one look at a run, living or not.

For: the newest facts, without disturbing anything. Not for: watching (`top`), looking (`looks`), drawing (`screen`) or
judging (`stuck`).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.looks import Looks
from deploy.run_folder import launcher_pid
from deploy.run_settings import RunSettings
from deploy.snapshot import Snapshot
from deploy.stuck import findings


def current_snapshot(folder: Path, settings: RunSettings) -> Snapshot | None:
    """From the server when it runs, else the last one that was kept, else None."""
    return asyncio.run(one_look(Looks(folder, settings)))


async def one_look(looks: Looks) -> Snapshot | None:
    try:
        return await looks.look()
    finally:
        await looks.close()


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
