"""`history.jsonl`: a run's moments, one line every few seconds, never more than so many lines however long it runs.

For: appending, reading while it grows, making room. Not for: what a moment holds (`moment`) or who writes it
(`recorder`). When the file is full each two lines become one, and lines come half as often from then on.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

from deploy.dashboard.moment import Moment, halved
from deploy.records import GrowingFile, records

HISTORY_FILE = "history.jsonl"
EVERY_S = 2.0
"""Shortest time between two lines."""
MOST = 2000
"""Lines; some 600 bytes each for eight slots."""


class HistoryWriter:
    """The one writer of a run's history."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.path = folder / HISTORY_FILE
        self.most = most
        found = records(self.path)
        self.lines = len(found)
        self.last_at = float(found[-1]["at"]) if found else 0.0
        self.every_s = spacing(found)

    def is_due(self, at: float) -> bool:
        return not self.last_at <= at < self.last_at + self.every_s  # a clock set back counts as due

    def append(self, moment: Moment) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(moment, separators=(",", ":")) + "\n")
        self.lines, self.last_at = self.lines + 1, float(moment["at"])
        if self.lines >= self.most:
            self.make_room()

    def make_room(self) -> None:
        kept = halved(records(self.path))
        draft = self.path.with_name(f".{HISTORY_FILE}.{os.getpid()}")
        draft.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in kept), encoding="utf-8")
        draft.replace(self.path)
        self.lines, self.every_s = len(kept), self.every_s * 2


def spacing(found: list[Moment]) -> float:
    """Seconds between the lines of a history that goes on: what it was thinned to, so a power of two times EVERY_S."""
    gaps = sorted(after["at"] - before["at"] for before, after in pairwise(found))
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    every_s = EVERY_S
    while every_s * 1.5 < usual and len(found) > MOST // 4:
        every_s *= 2
    return every_s


class HistoryReader:
    """A run's history read piece by piece."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / HISTORY_FILE
        self.file = GrowingFile(self.path)
        self.inode = 0
        self.moments: list[Moment] = []

    def refresh(self) -> tuple[bool, list[Moment]]:
        """(whether everything before is void, because the file was thinned; what is new)."""
        inode = self.path.stat().st_ino if self.path.is_file() else 0
        anew = inode != self.inode
        if anew:
            self.inode, self.file, self.moments = inode, GrowingFile(self.path), []
        new = self.file.new_records()
        self.moments += new
        return anew, new
