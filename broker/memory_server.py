"""What stands for a server when everything runs in one process: one run's record, and who waits for it to change.

For: `memory_broker`, and tests that restart or empty a server. Not for: what verbs do (`transitions`). One event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from broker.run_record import RunRecord

ValueT = TypeVar("ValueT")


class MemoryServer:
    """One run, and who waits for it to change."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.starts = 1
        self.run = RunRecord()
        self.beats: dict[str, dict[str, Any]] = {}
        self.changed = asyncio.Event()

    @property
    def name(self) -> str:
        """As a server's run id: another one after every start."""
        return f"start-{self.starts}"

    def keep(self, run: RunRecord) -> None:
        """`run` is the record from now on; whoever waits looks again."""
        if run is not self.run:
            self.run = run
            self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def restart(self) -> None:
        """As a server that was killed and came back with its data: the run is closed until a trainer opens it."""
        self.starts += 1
        self.wake()

    def flush(self) -> None:
        """As FLUSHALL: everything is gone, but entry ids, which tell the time, are never given twice."""
        self.run, self.beats = RunRecord(next_entry=self.run.next_entry), {}
        self.wake()

    async def until(self, answer: Callable[[], ValueT | None], seconds: float) -> ValueT | None:
        """The first answer that is not None, asked again at every change; None after `seconds`."""
        deadline = time.monotonic() + seconds
        while (found := answer()) is None and (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self.changed.wait(), left)
            except TimeoutError:
                continue
        return found
