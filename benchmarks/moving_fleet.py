"""A real run on slots, one of which a person moves, and when each part of a move happened.

For: `moves`. Not for: what is made of it. One slot does all the work, so that it finds work in hand wherever it comes:
the other is emptied once the run is open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.launched_run import COMMAND
from broker import embedded_server
from broker.fleet import Fleet
from broker.redis_broker import RedisBroker
from deploy.records import Record, records
from deploy.slot_crew import fleet_of

MOVED, EMPTIED = "slot-1", "slot-0"
LIMIT_S = 600.0
"""For anything to happen; a busy machine takes minutes to make the model."""
LOADED = {"rollout": "engine loaded", "train": "learner loaded"}
STANDS = {"rollout": "serving", "train": "caught up"}
"""What the controller logs once it is where the run is."""
PARTS = ("hear", "drain", "spawn", "import", "load", "catch up", "first work")


@dataclass(frozen=True, slots=True)
class MovingFleet:
    """See the module."""

    folder: Path
    url: str

    def move(self, pool: str, *, spare: bool) -> dict[str, float]:
        """Move the slot to `pool` once there is work for it there (and a spare is ready); seconds of each part."""
        self.wait_for_work(pool)
        if spare:
            self.after(self.supervisor, "spare ready", self.at(self.supervisor, "controller started"))
        version, ordered = self.version, time.time()
        self.order(MOVED, pool)
        heard = self.after(self.supervisor, "wanted", ordered)
        drained = self.after(self.supervisor, "controller ended", heard)
        moments = [ordered, heard, drained]
        for event in ("begun", "imported", LOADED[pool], STANDS[pool]):
            moments.append(self.after(self.controller, event, moments[-1]))
        moments.append(self.worked(pool, version, moments[-1]))
        serving = self.after(self.supervisor, "serving", drained)
        parts = {part: end - begin for part, begin, end in zip(PARTS, moments, moments[1:], strict=False)}
        return {f"{part} (s)": round(seconds, 3) for part, seconds in parts.items()} | {
            "all but the drain (s)": round(moments[-1] - moments[0] - parts["drain"], 3),
            "until the slot knows it serves (s)": round(serving - drained, 3),
        }

    def worked(self, pool: str, version: int, since: float) -> float:
        """When the first group was sampled, or the first version committed."""
        if pool == "rollout":
            return self.after(self.controller, "first rollouts", since)
        return wait(lambda: next((step["at"] for step in self.steps if step["version"] > version), None))

    def wait_for_work(self, pool: str) -> None:
        """Until all open groups wait for `pool`, but for a batch at most that the trainer cannot use yet."""
        stream = {"rollout": "prompts", "train": "scored"}[pool]
        others = {"prompts", "rollouts", "scored"} - {stream}

        def is_there() -> bool:
            backlog = self.ask(lambda run: run.backlog())
            return backlog[stream] > 0 and not any(backlog[other] for other in others - {"scored"})

        wait(is_there)

    def ask(self, what: Callable[[RedisBroker], Any]) -> Any:
        async def asked() -> Any:
            run = await RedisBroker.connect(self.url, self.folder.name)
            try:
                return await what(run)
            finally:
                await run.close()

        return asyncio.run(asked())

    def order(self, slot: str, pool: str) -> None:
        """Pinned as by a person, so that the scheduler leaves it there; no bell is rung: the slot reads its record."""

        async def ordered() -> None:
            fleet = await Fleet.connect(self.url, fleet_of(self.folder.name))
            try:
                seen = (await fleet.wanted(slot)).epoch
                done = await fleet.assign(slot, pool, seen=seen, reason="measured", by="benchmark", pin="pin")
            finally:
                await fleet.close()
            if done.answer != "done":
                raise RuntimeError(f"{slot} was not moved to {pool or 'no pool'}: {done.answer}")

        asyncio.run(ordered())

    def spares(self) -> list[dict[str, float]]:
        """What each spare said of itself when it was ready."""
        return [
            {"import (s)": line["import_s"], "RSS (MB)": line["rss_mb"], "of its own (MB)": line["own_mb"]}
            for line in logged(self.supervisor, "spare ready")
        ]

    @property
    def supervisor(self) -> Path:
        return self.folder / "logs" / f"{MOVED}.worker.jsonl"

    @property
    def controller(self) -> Path:
        return self.folder / "logs" / f"{MOVED}.jsonl"

    @property
    def steps(self) -> list[Record]:
        return records(self.folder / "steps.jsonl")

    @property
    def version(self) -> int:
        return max((step["version"] for step in self.steps), default=0)

    def at(self, path: Path, event: str) -> float:
        """When it was logged last."""
        return max(moments(path, event), default=0.0)

    def after(self, path: Path, event: str, since: float) -> float:
        """When it was logged first since then, waited for."""
        return wait(lambda: next((at for at in moments(path, event) if at >= since), None))


def logged(path: Path, event: str) -> list[Record]:
    """All lines of this event."""
    return [line for line in records(path) if line.get("event") == event]


def moments(path: Path, event: str) -> list[float]:
    """Seconds since 1970 at which the event was logged."""
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in logged(path, event)]


def wait(condition: Callable[[], Any]) -> Any:
    """What the condition answers, once it answers something. Raises TimeoutError."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened for {LIMIT_S:g} s; the run's folder holds its logs")
        time.sleep(0.1)
    return found


@contextmanager
def moving_fleet(root: Path, name: str, overrides: Sequence[str]) -> Generator[MovingFleet]:
    """`tidemill run NAME --slots 2 …` under `root`, open, with one of its slots emptied; ended by Ctrl-C."""
    before = set(root.iterdir()) if root.is_dir() else set[Path]()
    with (root / "said").open("ab") as said:
        process = subprocess.Popen(
            [COMMAND, "run", name, "--slots", "2", *overrides],
            env={**os.environ, "TIDEMILL_RUNS": str(root)},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        folder = wait(lambda: next((one for one in new_folders(root, before) if one.joinpath("logs").is_dir()), None))
        wait(lambda: moments(folder / "logs" / f"{EMPTIED}.jsonl", "trained") or process.poll() is not None)
        fleet = MovingFleet(folder, embedded_server.address(folder / "redis"))
        fleet.order(EMPTIED, "")
        wait(lambda: moments(folder / "logs" / f"{EMPTIED}.worker.jsonl", "controller ended"))
        yield fleet
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)


def new_folders(root: Path, before: set[Path]) -> list[Path]:
    return [one for one in root.iterdir() if one not in before and one.is_dir() and not one.is_symlink()]
