"""The runs a dashboard knows: one watch and one archive each, made when somebody asks.

For: names to runs. Not for: HTTP (`server`) or looking (`watch`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from broker.settings import RUN_SETTINGS_FILE
from deploy.dashboard.rollouts import Rollouts
from deploy.dashboard.watch import Watch
from deploy.observer import saved_snapshot
from deploy.records import evaluations_of, steps_of
from deploy.run_check import saved_run
from deploy.run_folder import launcher_pid, run_folders


class Desk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.watches: dict[str, Watch] = {}
        self.archives: dict[Path, Rollouts] = {}
        self.known_rows: dict[Path, tuple[float, dict[str, Any]]] = {}

    def watch(self, name: str) -> Watch | None:
        """None when there is no such run. A name is only ever compared with the names of folders."""
        if name not in self.watches:
            folder = next((folder for folder in run_folders(self.root) if folder.name == name), None)
            if folder is None:
                return None
            try:
                self.watches[name] = Watch(folder.resolve(), saved_run(folder))
            except Misconfigured:
                return None
        return self.watches[name]

    def watched(self) -> int:
        """Browsers that look at a run now."""
        return sum(len(watch.viewers) for watch in self.watches.values())

    def rollouts(self, folder: Path) -> Rollouts:
        return self.archives.setdefault(folder, Rollouts(folder))

    def rows(self) -> list[dict[str, Any]]:
        """One row a run, the newest first; what has not changed since is not read again."""
        return [self.row(folder) for folder in reversed(run_folders(self.root))]

    def row(self, folder: Path) -> dict[str, Any]:
        newest = max((path.stat().st_mtime for path in folder.glob("*.json*")), default=0.0)
        known = self.known_rows.get(folder)
        if known is None or known[0] != newest:
            known = self.known_rows[folder] = (newest, run_row(folder))
        row = known[1]
        state = "running" if launcher_pid(folder) else "finished" if row["finished"] else "stopped"
        return {**row, "state": state if row["version"] >= 0 or state == "running" else "empty"}

    def dismiss(self) -> None:
        """End every stream of events."""
        for watch in self.watches.values():
            watch.dismiss()

    async def close(self) -> None:
        for watch in self.watches.values():
            await watch.close()
        for archive in self.archives.values():
            await archive.close()


def run_row(folder: Path) -> dict[str, Any]:
    """From the run folder alone."""
    snapshot = saved_snapshot(folder)
    steps, measured = list(steps_of(folder).values()), list(evaluations_of(folder).values())
    wanted = json.loads((folder / RUN_SETTINGS_FILE).read_text())
    begun = datetime.fromtimestamp((folder / RUN_SETTINGS_FILE).stat().st_mtime, UTC)
    return {
        "run": folder.name,
        "begun": begun.timestamp(),
        "elapsed_s": snapshot.get("elapsed_s"),
        "version": max(int(snapshot.get("version", -1)), steps[-1]["version"] if steps else -1),
        "steps": wanted.get("run", {}).get("steps"),
        "reward": steps[-1]["reward"] if steps else None,
        "accuracy": [measured[0]["accuracy"], measured[-1]["accuracy"]] if measured else None,
        "curve": curve_of(steps, measured),
        "finished": snapshot.get("finished", ""),
    }


def curve_of(steps: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[float]:
    """Accuracy, or reward where nothing is measured, for a line as small as a word."""
    values = [one["accuracy"] for one in measured] if len(measured) > 1 else [one["reward"] for one in steps]
    every = max(1, len(values) // 60)
    return [round(value, 4) for value in values[::every]]
