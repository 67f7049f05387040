"""A run whose trainer and producers work on slots: its fleet as a test reads and orders it, and its processes by name.

For: launching, ordering, finding a process to strike. Not for: what strikes it (`slot_strikes`) or what must have been
true all along (`slot_witness`).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker import embedded_server
from broker.fleet import FLEET_VARIABLE, Fleet, Pin
from broker.settings import URL_VARIABLE
from deploy.slot_crew import fleet_of
from tests.faults.strikes import Observed
from tests.integration.test_launcher import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A living process of the run."""

    pid: int
    parent: int
    argv: tuple[str, ...]

    def option(self, name: str) -> str:
        """What follows `--name` in its command line; empty when nothing does."""
        return self.argv[self.argv.index(name) + 1] if name in self.argv[:-1] else ""

    def has_open(self, path: Path) -> bool:
        try:
            return any(str(file.readlink()) == str(path) for file in Path(f"/proc/{self.pid}/fd").iterdir())
        except OSError:
            return False


def living() -> list[Seen]:
    """Every process there is that has a command line."""
    found: list[Seen] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = tuple((folder / "cmdline").read_text().split("\0")[:-1])
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if argv and state != "Z":
            found.append(Seen(pid=int(folder.name), parent=int(parent), argv=argv))
    return found


async def asked(url: str, run: str, what: Callable[[Fleet], Any]) -> Any:
    """What the run's fleet answers."""
    fleet = await Fleet.connect(url, fleet_of(run))
    try:
        return await what(fleet)
    finally:
        await fleet.close()


def story_of(folder: Path) -> list[dict[str, Any]]:
    """Every decision of a run that is over, oldest first."""
    with embedded_server.serving(folder / "redis") as url:
        return asyncio.run(asked(url, folder.name, lambda fleet: fleet.decisions(10_000)))


class OnSlots(Observed):
    """A launch of a run on slots, and everything around it that a test started: `closed` ends it."""

    def __init__(self, folder: Path, seen: list[int] | None = None) -> None:
        super().__init__(folder, seen)
        self.url = embedded_server.address(folder / "redis")
        self.beside: list[subprocess.Popen[bytes]] = []

    def again(self) -> OnSlots:
        return OnSlots(self.folder, self.seen)

    def on_the_fleet(self, what: Callable[[Fleet], Any]) -> Any:
        return asyncio.run(asked(self.url, self.folder.name, what))

    def said(self, slot: str) -> dict[str, Any]:
        return self.on_the_fleet(lambda fleet: fleet.said()).get(slot, {})

    def reported(self, slot: str, within_s: float = 40, **facts: Any) -> dict[str, Any]:
        """The slot's report, once it says these facts."""
        return until(lambda: (said := self.said(slot)) and facts.items() <= said.items() and said, within_s)

    def order(self, slot: str, pool: str, pin: Pin = "") -> int:
        """As a person: whatever was ordered a moment ago, this is newer. The record's epoch then."""

        async def newest(fleet: Fleet) -> int:
            while True:
                seen = (await fleet.wanted(slot)).epoch
                done = await fleet.assign(slot, pool, seen=seen, reason="a test", by="test", pin=pin)
                if done.answer == "done":
                    return done.epoch

        return self.on_the_fleet(newest)

    def controllers(self, slot: str) -> list[Seen]:
        """The processes that work on the slot, whatever they were started as: never more than one writes its log."""
        log = self.folder / "logs" / f"{slot}.jsonl"
        ours = [one for one in living() if one.option("--run") == str(self.folder) and one.has_open(log)]
        return [one for one in ours if one.parent not in {other.pid for other in ours}]

    def controller(self, slot: str, *, other_than: int = 0) -> int:
        """The slot's living controller."""
        found = until(lambda: [one.pid for one in self.controllers(slot) if one.pid != other_than], 40)
        return found[0]

    def worker(self, slot: str) -> int:
        """The Celery worker that hosts the slot: it is the parent of whatever works there."""
        return until(lambda: [one.parent for one in self.controllers(slot)], 40)[0]

    def scheduler(self) -> int:
        """That which the launcher started."""
        command, parent = ("-m", "scheduler"), self.process.pid
        return until(lambda: [one.pid for one in living() if one.parent == parent and one.argv[1:3] == command], 40)[0]

    def start_scheduler(self, module: str = "scheduler") -> subprocess.Popen[bytes]:
        """One more, as an operator starts it."""
        env = {**os.environ, URL_VARIABLE: self.url, FLEET_VARIABLE: fleet_of(self.folder.name)}
        said = self.folder / "logs" / f"scheduler-{len(self.beside) + 1}.said"
        with said.open("ab") as out:
            root = str(Path(__file__).parents[2])
            process = subprocess.Popen(
                [sys.executable, "-m", module], env={**env, "PYTHONPATH": root}, stdout=out, stderr=out
            )
        self.beside.append(process)
        return process

    def schedulers_said(self) -> str:
        return "".join(path.read_text() for path in sorted((self.folder / "logs").glob("scheduler-*.said")))

    def close(self) -> None:
        """End what was started beside the launch."""
        for process in self.beside:
            process.kill()
            process.wait(10)
