"""Finished groups of one run for the rollout browser: found by the words of an address, a page at a time.

For: what `/api/runs/RUN/groups` answers. Not for: the index itself (`broker.archive_index`) or how one group is shown
(`rollout_text`). The index is brought up to date when somebody looks; the first time that may take seconds, which the
answer tells instead of waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

from broker.archive import Closed
from broker.archive_index import GroupIndex
from broker.archive_query import SORTS, Bounds, Sort
from broker.messages import Kind

PATIENCE_S = 0.5
"""Longest an answer waits for the index to catch up."""
PAGE_SIZE = 50
FURTHEST_PAGE = 10**9
"""SQLite counts in 64 bits."""


class Rollouts:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "groups"
        self.index: GroupIndex | None = None
        self.opening = asyncio.Lock()
        self.reading: asyncio.Task[int] | None = None
        self.read, self.whole = 0, 1
        self.fates: dict[str, int] | None = None
        """As of the last refresh that found something new."""

    async def is_current(self) -> bool:
        """Let the index catch up for a moment; False while it is still at it."""
        async with self.opening:
            self.index = self.index or await asyncio.to_thread(GroupIndex, self.folder)
        reading = self.reading = self.reading or asyncio.create_task(asyncio.to_thread(self.index.refresh, self.note))
        done, _ = await asyncio.wait([reading], timeout=PATIENCE_S)
        if done and self.reading is reading:  # of all that waited for it, the first
            self.reading = None
            self.fates = None if reading.result() else self.fates
        return bool(done)

    def note(self, read: int, whole: int) -> None:
        self.read, self.whole = read, whole

    async def page(self, words: Mapping[str, str]) -> dict[str, Any]:
        """Raises ValueError for words nobody can search by."""
        asked, number = search_words(words), page_number(words)
        if not await self.is_current():
            return {"reading": self.read / max(1, self.whole), "total": 0, "page": 0, "rows": [], "fates": {}}
        assert self.index is not None
        found = await asyncio.to_thread(self.index.search, **asked, offset=number * PAGE_SIZE, limit=PAGE_SIZE)
        self.fates = self.fates if self.fates is not None else await asyncio.to_thread(self.index.counts)
        rows = [asdict(row) for row in found.rows]
        return {"total": found.total, "page": number, "page_size": PAGE_SIZE, "fates": self.fates, "rows": rows}

    async def group(self, name: str) -> Closed | None:
        await self.is_current()
        assert self.index is not None
        return await asyncio.to_thread(self.index.read, name)

    async def close(self) -> None:
        if self.reading is not None:
            with contextlib.suppress(Exception):
                await self.reading
        if self.index is not None:
            self.index.close()


def search_words(words: Mapping[str, str]) -> dict[str, Any]:
    """`reward_min=0.5&fate=no_signal&sort=-reward` as arguments of a search. Raises ValueError."""
    sort, kind = words.get("sort", "-at"), words.get("kind", "")
    if sort.lstrip("-") not in SORTS:
        raise ValueError(f"sort = {sort!r}: known are {', '.join(SORTS)}, each also with a minus before it")
    if kind not in ("", *get_args(Kind)):
        raise ValueError(f"kind = {kind!r}: known are {', '.join(get_args(Kind))}")
    return {
        "text": words.get("text", "").strip(),
        "reward": bounds(words, "reward"),
        "length": bounds(words, "length"),
        "version": bounds(words, "version"),
        "trained": bounds(words, "trained"),
        "fate": words.get("fate") or None,
        "kind": cast("Kind | None", kind or None),
        "sort": cast("Sort", sort.lstrip("-")),
        "ascending": not sort.startswith("-"),
    }


def bounds(words: Mapping[str, str], name: str) -> Bounds:
    low, high = words.get(f"{name}_min", ""), words.get(f"{name}_max", "")
    return (float(low) if low else None, float(high) if high else None)


def page_number(words: Mapping[str, str]) -> int:
    return min(max(0, int(words.get("page") or 0)), FURTHEST_PAGE)
