"""The logs of a run's processes as one story: merged in time, filtered, told while they grow.

For: `tidemill logs`. Not for: writing them (`broker.telemetry`) or how a line looks (`broker.log_words`).

Records stand in `logs/PROCESS.jsonl`, each once; warnings stand in `PROCESS.err` again, and are passed over there. What
else a process wrote to `.err` (a native crash, a library's own print) has no time: it stands where that file was last
written.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from broker.telemetry import LEVELS
from deploy.records import GrowingFile, Record, parsed

LOOK_S = 0.3
"""Between two looks at files that may have grown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which lines are wanted; what is empty wants all."""

    role: str = ""
    slot: str = ""
    process: str = ""
    group: str = ""
    level: str = "debug"

    def __call__(self, record: Record) -> bool:
        named = all(
            not wanted or record.get(name) == wanted
            for name, wanted in (("role", self.role), ("slot", self.slot), ("process", self.process))
        )
        grave = LEVELS.get(str(record.get("level")), LEVELS["info"]) >= LEVELS[self.level]
        return named and grave and self.is_about_the_group(record)

    def is_about_the_group(self, record: Record) -> bool:
        return not self.group or record.get("group") == self.group or self.group in (record.get("groups") or ())


@dataclass(slots=True)
class Story:
    """Of one run, told once from its beginning."""

    folder: Path
    wanted: Filter
    files: dict[Path, GrowingFile] = field(default_factory=dict[Path, GrowingFile])
    """Read up to where it was told."""

    def so_far(self) -> Iterator[Record]:
        """All lines there are, in the order of their times."""
        parts = [records_of(file) for file in self.records()]
        parts += [unstructured(path) for path in sorted((self.folder / "logs").glob("*.err"))]
        return filter(self.wanted, heapq.merge(*parts, key=moment))

    def coming(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Record]:
        """Lines added since, also by processes that have yet to come; ends when whoever reads stops.

        consumes: growing files   produces: lines   waits for: a writer   unblocked by: time
        """
        while True:
            fresh = [record for file in self.records() for record in file.new_records()]
            yield from filter(self.wanted, sorted(fresh, key=moment))
            pause(LOOK_S)

    def records(self) -> list[GrowingFile]:
        for path in sorted((self.folder / "logs").glob("*.jsonl")):
            self.files.setdefault(path, GrowingFile(path))
        return list(self.files.values())


def moment(record: Record) -> str:
    """Written by one clock in one form, so text compares as time does."""
    return str(record.get("timestamp", ""))


def records_of(growing: GrowingFile) -> Iterator[Record]:
    """Line by line, for there may be many; the file is read up to where this has come."""
    with growing.path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            growing.offset += len(line)
            if (record := parsed(line)) is not None:
                yield record


def unstructured(path: Path) -> Iterator[Record]:
    """What stands there and is no record."""
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat().replace("+00:00", "Z")
    for line in path.read_text(errors="replace").splitlines():
        if line.strip() and parsed(line.encode()) is None:
            yield {"timestamp": written, "process": path.stem, "level": "warning", "event": line.rstrip()}
