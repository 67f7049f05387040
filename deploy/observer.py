"""Looking at a run: broker, heartbeats and run folder in, one `Snapshot` out.

For: launcher and `status`. Not for: judging (`watchdog`) or drawing (`progress`). A server that does not answer is no
error here: what it would have said stays as it was.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from broker.contract import RunState
from broker.errors import Reset, TidemillError
from broker.redis_broker import RedisBroker
from deploy.records import GrowingFile, Record
from deploy.run_settings import RunSettings
from deploy.snapshot import RECENT_STEPS, Goal, Life, Process, Snapshot, busy_share, lives_with

SNAPSHOT_FILE = "snapshot.json"
RECENT_S = 10.0
LOOK_S = 5.0
"""Longest look; a slower server is looked at again next time."""

Beats = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Facts:
    """What the server last said."""

    state: RunState
    backlog: Mapping[str, int]
    counts: Mapping[str, int]
    open_groups: Mapping[str, str]
    beats: Beats


class Observer:
    """One run, looked at again and again."""

    def __init__(self, folder: Path, settings: RunSettings, broker: RedisBroker, *, started: float) -> None:
        """`started`: of this launch, by the monotonic clock."""
        self.folder = folder
        self.broker = broker
        self.goal = Goal(steps=settings.run.steps, staleness=settings.train.staleness, stop_when=settings.run.stop_when)
        self.step_file, self.evaluation_file = (
            GrowingFile(folder / "steps.jsonl"),
            GrowingFile(folder / "evaluations.jsonl"),
        )
        self.steps: deque[Record] = deque(maxlen=RECENT_STEPS)
        self.accuracies: dict[int, float] = {}
        self.facts = Facts(RunState(exists=False), {}, {}, {}, {})
        self.earlier: deque[tuple[float, Beats]] = deque()
        self.lives: dict[str, Life] = {}
        self.started = started
        self.elapsed_before, self.lives_before = former_launches(folder)

    async def look(self, stage: str = "", detail: str = "") -> Snapshot:
        """The run now. `stage` names what the launcher does; empty takes it from the run."""
        try:
            async with asyncio.timeout(LOOK_S):
                self.facts = await self.ask()
        except (TidemillError, TimeoutError) as error:
            detail = detail or f"the server does not answer ({error})"
        self.steps.extend(self.step_file.new_records())
        self.accuracies |= {int(one["version"]): one["accuracy"] for one in self.evaluation_file.new_records()}
        return self.snapshot(stage, detail)

    async def ask(self) -> Facts:
        state, backlog, beats = await asyncio.gather(self.broker.look(), self.broker.backlog(), self.broker.beats())
        counts, open_groups = self.facts.counts, self.facts.open_groups
        if state.is_open:
            counts, open_groups = await self.read_books()
            self.lives = lives_with(self.lives, beats)
        return Facts(state, backlog, counts, open_groups, beats)

    async def read_books(self) -> tuple[Mapping[str, int], Mapping[str, str]]:
        try:
            books = await self.broker.books()
        except Reset:
            await self.broker.enter(timeout_s=1)
            books = await self.broker.books()
        oldest_first = sorted(books.open.items(), key=lambda item: (item[1].floor, item[1].entry_id))
        return books.counts, {group: line.stream for group, line in oldest_first}

    def snapshot(self, stage: str, detail: str) -> Snapshot:
        state, accuracies = self.facts.state, sorted(self.accuracies.items())
        return Snapshot(
            run=self.folder.name,
            goal=self.goal,
            elapsed_s=self.elapsed_s,
            stage=stage or stage_of(state),
            detail=detail,
            version=state.live.version if state.live else -1,
            steps=tuple(self.steps),
            accuracy_start=accuracies[0][1] if accuracies else None,
            accuracy=accuracies[-1][1] if accuracies else None,
            backlog=self.facts.backlog,
            counts=self.facts.counts,
            open_groups=self.facts.open_groups,
            processes=self.processes(),
            finished=state.finished,
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds of all launches of this run together."""
        return self.elapsed_before + time.monotonic() - self.started

    def processes(self) -> dict[str, Process]:
        now = time.monotonic()
        self.earlier.append((now, self.facts.beats))
        while now - self.earlier[0][0] > RECENT_S:
            self.earlier.popleft()
        reports = [beats for _, beats in self.earlier]
        return {name: process_of(name, beat, reports) for name, beat in sorted(self.facts.beats.items())}

    def save(self, snapshot: Snapshot) -> None:
        """Keep the newest look in the run folder, for commands that come when the server is gone."""
        lives = {**self.lives_before, **self.lives}
        content = {
            **asdict(snapshot),
            "lives": {key: asdict(life) for key, life in lives.items()},
            "busy_share": busy_share(lives.values()),
        }
        draft = self.folder / f".{SNAPSHOT_FILE}"
        draft.write_text(json.dumps(content))
        draft.replace(self.folder / SNAPSHOT_FILE)


def stage_of(state: RunState) -> str:
    if state.finished:
        return "finished"
    return "training" if state.is_open else "waiting for the trainer"


def process_of(name: str, beat: Mapping[str, Any], reports: Sequence[Beats]) -> Process:
    """A process by its report; how busy it was since its oldest one among `reports`."""
    before = next(beats[name] for beats in reports if name in beats and beats[name]["pid"] == beat["pid"])
    worked, waited = beat["busy_s"] - before["busy_s"], beat["wait_s"] - before["wait_s"]
    busy = worked / (worked + waited) if worked + waited > 0 else None
    names = ("role", "pid", "stage", "age_s", "progress", "version")
    return replace(Process(**{name: beat[name] for name in names}), busy=busy)


def former_launches(folder: Path) -> tuple[float, dict[str, Life]]:
    """Seconds and lives of earlier launches of this run."""
    saved = saved_snapshot(folder)
    return float(saved.get("elapsed_s", 0.0)), {key: Life(**life) for key, life in saved.get("lives", {}).items()}


def saved_snapshot(folder: Path) -> dict[str, Any]:
    """The newest look that was kept, or nothing."""
    path = folder / SNAPSHOT_FILE
    return json.loads(path.read_text()) if path.is_file() else {}
