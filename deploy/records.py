"""Reading the JSON-lines files of a run folder, while they grow and after.

For: `steps.jsonl` and `evaluations.jsonl`. Not for: writing them (trainer), or what they add up to (`report`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]
STEPS_FILE = "steps.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"


class GrowingFile:
    """A JSON-lines file read piece by piece; a line that is still being written waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def age_s(self, now: float) -> float | None:
        """Since it last grew, `now` in epoch seconds; None while there is none."""
        return max(0.0, now - self.path.stat().st_mtime) if self.path.is_file() else None

    def new_records(self) -> list[Record]:
        """What was appended since the last call."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [record for line in whole.splitlines() if (record := parsed(line)) is not None]


def parsed(line: bytes) -> Record | None:
    """The line's object; None for a line that is none (a writer was killed in the middle, or it is plain text)."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def records(path: Path) -> list[Record]:
    """All records of a file, none when it is missing."""
    return GrowingFile(path).new_records()


def steps_of(folder: Path) -> dict[int, Record]:
    """What the trainer wrote down of each version of a run, in order."""
    return by_version(records(folder / STEPS_FILE))


def evaluations_of(folder: Path) -> dict[int, Record]:
    """What each measured version of a run reached, in order."""
    return by_version(records(folder / EVALUATIONS_FILE))


def by_version(found: list[Record]) -> dict[int, Record]:
    """The last record of each version, in order: a replayed step is written again."""
    return dict(sorted({int(record["version"]): record for record in found}.items()))
