"""Whoever looks at a run also keeps its history: the launcher, else a dashboard; one writer at a time.

For: moments into the run folder. Not for: looking at the run (`observer`). A folder that cannot be written, or that
another process records, is no error: then this one records nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.dashboard.history import HistoryWriter
from deploy.dashboard.moment import moment_of
from deploy.snapshot import Snapshot

LOCK = "history.lock"


class Recorder:
    """Keeps the history of one run, as long as it is the one who does.

    >>> recorder = Recorder(folder)
    >>> recorder.note(await observer.look(), observer.facts.fleet.decision)   # at every look
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock: Any = None
        self.writer: HistoryWriter | None = None
        self.decided_at = 0.0
        self.decisions: list[Mapping[str, Any]] = []
        """Those that stand in no line yet."""

    def note(self, snapshot: Snapshot, decision: Mapping[str, Any]) -> None:
        """Keep this look if it is time for one; `decision`: the scheduler's last, empty without one."""
        if not self.is_writer() or self.writer is None:
            return
        at = time.time()
        if snapshot.slots and decision.get("at", 0.0) > self.decided_at:
            self.decided_at = decision["at"]
            self.decisions.append(decision)
        if self.writer.is_due(at):
            with contextlib.suppress(OSError):  # a full disk must not end a run; the launcher's own files will say it
                self.writer.append(moment_of(snapshot, self.decisions, at))
                self.decisions.clear()

    def is_writer(self) -> bool:
        """Become it, if nobody is."""
        if self.writer is not None:
            return True
        try:
            self.lock = self.lock or (self.folder / LOCK).open("a")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.writer = HistoryWriter(self.folder)
        except OSError:
            return False
        self.decided_at = max(self.decided_at, self.writer.last_at)
        return True

    def close(self) -> None:
        if self.lock is not None:
            self.lock.close()
        self.lock, self.writer = None, None
