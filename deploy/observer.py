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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from broker.contract import RunState
from broker.errors import TidemillError
from broker.redis_broker import RedisBroker
from broker.standing import Standing, standing
from consumers.settings import needs_judge
from deploy.fleet_facts import decision_of, pools_of, slots_of
from deploy.plain_text import plain, shortened
from deploy.records import GrowingFile, Record
from deploy.run_settings import RunSettings
from deploy.slot_crew import fleet_of
from deploy.snapshot import (
    RECENT_STEPS,
    TRAINING,
    WAITING_FOR_THE_TRAINER,
    Life,
    Process,
    Snapshot,
    busy_share,
    goal_of,
    lives_with,
)
from deploy.whole_file import write_whole
from scheduler.pools import pools_in_use

SNAPSHOT_FILE = "snapshot.json"
RECENT_S = 10.0
LOOK_S = 5.0
"""Longest look; a slower server is looked at again next time."""
FULL = 0.99
"""A server that refuses work for want of memory hovers so near its limit: what still drains frees a little."""

Beats = Mapping[str, Mapping[str, Any]]

Former = tuple[float, dict[str, Life]]
"""Seconds and lives of earlier launches."""


class Observer:
    """One run, looked at again and again."""

    def __init__(
        self, folder: Path, settings: RunSettings, broker: RedisBroker, *, started: float, former: Former | None = None
    ) -> None:
        """`started`: of this launch, by the monotonic clock. `former`: what was kept before it; read where None."""
        self.folder = folder
        self.broker = broker
        self.goal = goal_of(settings)
        self.kinds = pools_in_use(settings.pools, judged=needs_judge(settings.reward))
        self.lease_s = settings.broker.lease_s
        self.step_file, self.evaluation_file = (
            GrowingFile(folder / "steps.jsonl"),
            GrowingFile(folder / "evaluations.jsonl"),
        )
        self.steps: deque[Record] = deque(maxlen=RECENT_STEPS)
        self.accuracies: dict[int, float] = {}
        self.facts = Standing()
        self.answered = started
        """When the server last did, by the monotonic clock."""
        self.unanswered = ""
        self.full_since: float | None = None
        self.earlier: deque[tuple[float, Beats]] = deque()
        self.lives: dict[str, Life] = {}
        self.started = started
        self.elapsed_before, self.lives_before = former or former_launches(folder)

    async def look(self, stage: str = "", detail: str = "") -> Snapshot:
        """The run now. `stage` names what the launcher does; empty takes it from the run."""
        try:
            async with asyncio.timeout(LOOK_S):
                self.learn(await standing(self.broker.connection, fleet_of(self.folder.name)), time.monotonic())
        except (TidemillError, TimeoutError) as error:
            self.unanswered = str(error) or f"no answer within {LOOK_S:g} s"
        self.steps.extend(self.step_file.new_records())
        self.accuracies |= {int(one["version"]): one["accuracy"] for one in self.evaluation_file.new_records()}
        return self.snapshot(stage, detail)

    def learn(self, facts: Standing, now: float) -> None:
        """What the server said, and since when that is so."""
        if facts.state.is_open:
            self.lives = lives_with(self.lives, facts.beats)
        is_full = facts.server.fill >= FULL or facts.server.refused > self.facts.server.refused > 0
        self.full_since = (self.full_since or now) if is_full else None
        self.facts, self.answered, self.unanswered = facts, now, ""

    def snapshot(self, stage: str = "", detail: str = "") -> Snapshot:
        """What is known, without another look."""
        facts, state, accuracies = self.facts, self.facts.state, sorted(self.accuracies.items())
        processes, slots = self.processes(), slots_of(facts.fleet, self.folder.name)
        now = time.monotonic()
        return Snapshot(
            run=self.folder.name,
            goal=self.goal,
            elapsed_s=self.elapsed_s,
            stage=stage or stage_of(state),
            detail=detail or (f"the server does not answer ({self.unanswered})" if self.unanswered else ""),
            version=state.live.version if state.live else -1,
            steps=tuple(self.steps),
            step_age_s=self.step_file.age_s(time.time()),
            accuracy_start=accuracies[0][1] if accuracies else None,
            accuracy=accuracies[-1][1] if accuracies else None,
            streams=facts.streams,
            counts=facts.counts,
            open=facts.open,
            cap=state.cap,
            groups=state.groups,
            dead=facts.dead,
            dead_limit=facts.state.dead_limit,
            processes=processes,
            pools=pools_of(self.kinds, slots, processes),
            slots=slots,
            decision=decision_of(facts.fleet, self.folder.name),
            server=facts.server,
            unanswered_s=now - self.answered if self.unanswered else 0.0,
            unanswered=self.unanswered,
            full_s=now - self.full_since if self.full_since is not None else 0.0,
            is_open=state.is_open,
            lease_s=self.lease_s,
            finished=state.finished,
            newest_dead=shortened(plain(" ".join(facts.newest_dead.split()))),
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
        keep(
            self.folder,
            {
                **asdict(snapshot),
                "lives": {key: asdict(life) for key, life in lives.items()},
                "busy_share": busy_share(lives.values()),
            },
        )


def stage_of(state: RunState) -> str:
    if state.finished:
        return "finished"
    return TRAINING if state.is_open else WAITING_FOR_THE_TRAINER


def process_of(name: str, beat: Mapping[str, Any], reports: Sequence[Beats]) -> Process:
    """A process by its report; how busy it was since its oldest one among `reports`."""
    before = next(beats[name] for beats in reports if name in beats and beats[name]["pid"] == beat["pid"])
    worked, waited = beat["busy_s"] - before["busy_s"], beat["wait_s"] - before["wait_s"]
    busy = worked / (worked + waited) if worked + waited > 0 else None
    names = ("role", "pid", "stage", "age_s", "progress", "version", "held", "items", "ready", "left")
    return Process(**{name: beat[name] for name in names if name in beat}, busy=busy)


def former_launches(folder: Path) -> Former:
    """Seconds and lives of earlier launches of this run."""
    saved = saved_snapshot(folder)
    return float(saved.get("elapsed_s", 0.0)), {key: Life(**life) for key, life in saved.get("lives", {}).items()}


def keep(folder: Path, content: Mapping[str, Any]) -> None:
    """What `saved_snapshot` answers from now on."""
    write_whole(folder / SNAPSHOT_FILE, json.dumps(content))


def saved_snapshot(folder: Path) -> dict[str, Any]:
    """The newest look that was kept, or nothing."""
    path = folder / SNAPSHOT_FILE
    return json.loads(path.read_text()) if path.is_file() else {}
