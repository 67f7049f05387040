"""One run, looked at once a second for however many browsers.

For: the newest facts of a run and who wants them. Not for: HTTP (`server`), the shape of what is told (`run_page`).
Nobody watching, nothing is asked. A server that is away, or gone for good, leaves what the run folder tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from broker.cancellation import end
from broker.errors import TidemillError
from deploy.dashboard.history import HistoryReader
from deploy.dashboard.recorder import Recorder
from deploy.dashboard.run_page import POINTS, present, settings_facts, step_point, step_points, thinned
from deploy.inspection import Records, dead
from deploy.looks import Looks, kept_snapshot
from deploy.records import GrowingFile, Record, by_version
from deploy.run_folder import launcher_pid
from deploy.run_settings import RunSettings
from deploy.snapshot import Snapshot, goal_of
from deploy.stuck import findings

LOOK_EVERY_S = 1.0
WITHOUT_VIEWERS_S = 5.0
"""So long a watch goes on when its last browser has gone."""
BEHIND = 30
"""Messages a browser may be behind; a slower one is told the whole again."""

DEAD_SHOWN = 200

Message = dict[str, Any]
GOODBYE: Message = {}
"""The last message: the dashboard ends."""


class Watch:
    """See the module."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.steps_file = GrowingFile(folder / "steps.jsonl")
        self.evaluations_file = GrowingFile(folder / "evaluations.jsonl")
        self.history = HistoryReader(folder)
        self.steps: list[Record] = []
        self.evaluations: list[Record] = []
        self.now: Message = {}
        self.stuck: list[Record] = []
        self.dead: list[Record] = []
        self.dead_seen = 0
        self.looks = Looks(folder, settings)
        self.recorder = Recorder(folder)
        self.viewers: set[asyncio.Queue[Message | None]] = set()
        self.task: asyncio.Task[None] | None = None
        self.looking, self.first = asyncio.Lock(), asyncio.Lock()

    # Browsers

    async def messages(self) -> AsyncGenerator[tuple[str, Message]]:
        """`whole` first and whenever the browser fell behind, then `more` after every look."""
        with self.viewer() as queue:
            yield "whole", await self.whole()
            while True:
                message = await queue.get()
                if message is GOODBYE:
                    return
                if message is None:
                    while not queue.empty():
                        queue.get_nowait()
                    yield "whole", await self.whole()
                else:
                    yield "more", message

    @contextlib.contextmanager
    def viewer(self) -> Generator[asyncio.Queue[Message | None]]:
        queue: asyncio.Queue[Message | None] = asyncio.Queue(BEHIND + 1)
        self.viewers.add(queue)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.look_on())
        try:
            yield queue
        finally:
            self.viewers.discard(queue)

    async def whole(self) -> Message:
        """Everything known. Only the first who asks waits for a look, however many ask at once."""
        async with self.first:
            if not self.now or self.task is None or self.task.done():
                self.tell(await self.look())
        return {
            "run": self.folder.name,
            "settings": settings_facts(self.settings),
            "now": self.now,
            "dead": self.dead,
            "stuck": self.stuck,
            "steps": step_points(self.steps),
            "evaluations": thinned(list(by_version(self.evaluations).values()), POINTS),
            "history": thinned(self.history.moments, POINTS),
        }

    # Looking

    async def look_on(self) -> None:
        """consumes: the run   produces: a message to every browser, once a second
        waits for: the next second   unblocked by: the last browser's leaving, a little later
        """
        alone_since = time.monotonic()
        try:
            while self.viewers or time.monotonic() - alone_since < WITHOUT_VIEWERS_S:
                if self.viewers:
                    alone_since = time.monotonic()
                self.tell(await self.look())
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self.tell(None)  # whoever still watches looks anew, and hears what went wrong
            await self.leave_server()

    def tell(self, message: Message | None) -> None:
        for queue in self.viewers:
            if queue.qsize() < BEHIND:
                queue.put_nowait(message)
            elif not queue.full():
                queue.put_nowait(None)

    def dismiss(self) -> None:
        """End the streams of all browsers; those try again by themselves."""
        for queue in self.viewers:
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(GOODBYE)

    async def look(self) -> Message | None:
        """Look once; what is new since the last look, or None when everything is to be told again."""
        async with self.looking:
            snapshot = await self.snapshot()
            steps, evaluations = self.steps_file.new_records(), self.evaluations_file.new_records()
            self.steps += steps
            self.evaluations += evaluations
            anew, moments = self.history.refresh()
            before = bool(self.now)
            self.now = present(snapshot, self.steps)
            self.stuck = [asdict(finding) for finding in findings(snapshot)]
            await self.look_at_dead(snapshot)
            if anew and before:
                return None
            new = {"steps": [step_point(step) for step in steps], "evaluations": evaluations, "history": moments}
            return {"now": self.now, "dead": self.dead, "stuck": self.stuck, **new}

    async def snapshot(self) -> Snapshot:
        """The run now; from the folder when it has no server any more, or that has forgotten it."""
        kept = kept_snapshot(self.folder) or self.unbegun()
        snapshot, observer = await self.looks.look(), self.looks.observer
        if snapshot is None or observer is None:
            self.recorder.close()
            return kept
        if not observer.facts.state.exists and (kept.version >= 0 or snapshot.unanswered):
            return replace(kept, detail=snapshot.detail) if snapshot.unanswered else kept
        self.recorder.note(snapshot, observer.facts.fleet.decision)
        return replace(snapshot, elapsed_s=max(snapshot.elapsed_s, kept.elapsed_s))

    def unbegun(self) -> Snapshot:
        stage = "starting" if launcher_pid(self.folder) else "has not begun"
        return Snapshot(run=self.folder.name, goal=goal_of(self.settings), elapsed_s=0.0, stage=stage, live=False)

    async def look_at_dead(self, snapshot: Snapshot) -> None:
        """Dead letters, asked for only when their number has changed."""
        if snapshot.live and not snapshot.unanswered and snapshot.dead != self.dead_seen:
            with contextlib.suppress(TidemillError):
                self.dead = await asyncio.to_thread(dead_letters, self.looks.url, self.folder.name)
                self.dead_seen = snapshot.dead

    async def leave_server(self) -> None:
        self.recorder.close()
        await self.looks.close()

    async def close(self) -> None:
        if self.task is not None:
            await end([self.task])
        await self.leave_server()


def dead_letters(url: str, run: str) -> list[Record]:
    """The newest first. Raises Unavailable."""
    names = ("group", "reason", "stage", "attempt", "kind")
    rows = dead(Records.reached(url, run), DEAD_SHOWN)
    return [{name: row.get(name, "") for name in names} for row in reversed(rows)]


def encoded(event: str, message: Message) -> str:
    """One server-sent event."""
    return f"event: {event}\ndata: {json.dumps(message, separators=(',', ':'))}\n\n"
