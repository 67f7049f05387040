"""Accuracy by weight version: when to ask for it, what came back, and whether the run's goal is reached.

For: the trainer's side of evaluation. Not for: admitting held-out prompts (feeder) or scoring them (reward consumer).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from broker.contract import Evaluation
from broker.redis_trainer import RedisTrainer
from broker.stop_rule import StopRule
from broker.trainer_transitions import EVALUATION_HOLDER

log = structlog.get_logger()


@dataclass(slots=True)
class Measurement:
    """Evaluations of one run."""

    path: Path
    """`evaluations.jsonl` in the run folder."""
    size: int
    """Groups per evaluation; 0: none."""
    every: int
    goal: StopRule | None
    hears: Sequence[Callable[[Mapping[str, Any]], None]] = ()
    """Told of each line of the file once it stands there."""
    hold_s: float = 600.0
    """How long a version to be measured is held."""
    last_s: float = 120.0
    """How long the last evaluation may take."""
    clock: Callable[[], float] = time.time
    written: set[int] = field(default_factory=set[int])
    asked: set[int] = field(default_factory=set[int])
    checked_at: float = 0.0

    def __post_init__(self) -> None:
        if self.path.is_file():
            self.written = {
                int(json.loads(line)["version"]) for line in self.path.read_text().splitlines() if line.endswith("}")
            }

    def wanted_at(self, version: int) -> int:
        """Groups to measure `version` on; 0 when it is not due."""
        due = self.size > 0 and version % self.every == 0
        if due:
            self.asked.add(version)
        return self.size if due else 0

    async def look(self, broker: RedisTrainer) -> str:
        """Write down what has been measured since; the goal's sentence if one of them reached it."""
        if self.size == 0 or self.clock() - self.checked_at < 0.1:
            return ""
        self.checked_at = self.clock()
        reached = ""
        for one in await broker.evaluations():
            if one.is_done and one.version not in self.written:
                reached = self.write(one) or reached
                await broker.drop_hold(one.version, EVALUATION_HOLDER)
        return reached

    def write(self, one: Evaluation) -> str:
        tasks = {
            name[2:]: one.tally[f"reward.{name[2:]}"] / count
            for name, count in one.tally.items()
            if name.startswith("n.")
        }
        accuracy = one.accuracy or 0.0
        line = {
            "version": one.version,
            "accuracy": accuracy,
            "n": int(one.tally["n"]),
            "at": self.clock(),
            "tasks": tasks,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        for hear in self.hears:
            hear(line)
        self.written.add(one.version)
        log.info("measured", version=one.version, accuracy=round(accuracy, 4), n=line["n"])
        if self.goal and self.goal.satisfied(accuracy, tasks):
            return f"goal reached at version {one.version}: accuracy {accuracy:.3f}"
        return ""

    async def first(self, broker: RedisTrainer, version: int) -> None:
        """Ask for the version the run starts or goes on from, and for those asked for earlier and never finished."""
        if self.size > 0 and version not in self.written:
            await broker.want_evaluation(version, self.size, hold_s=self.hold_s)

    async def last(self, broker: RedisTrainer, version: int, stop: asyncio.Event) -> None:
        """Wait until `version` is measured, by a deadline."""
        if self.size == 0 or version in self.written:
            return
        if version not in self.asked:
            await broker.want_evaluation(version, self.size, hold_s=self.hold_s)
        deadline = self.clock() + self.last_s
        while version not in self.written and not stop.is_set():
            if self.clock() > deadline:
                log.warning(
                    "the last version was not measured in time; ending without it", version=version, seconds=self.last_s
                )
                return
            await asyncio.sleep(0.1)
            await self.look(broker)
