"""Closed groups on disk: what every group said and what became of it, long after the server forgot.

For: `show`, `report`, `rescore`. Not for: replay (a version's own batch file) or the books. Each process appends to
its own file; a group closed twice (its closer died between append and close) is there twice, and readers keep the last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgpack

from broker import codec
from broker.messages import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    group: Group
    fate: str
    at: float
    """Seconds since 1970 by the closer's clock."""


class Archive:
    """One process's file."""

    def __init__(self, folder: Path, process: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"{process}.msgpack").open("ab")

    def append(self, group: Group, *, fate: str) -> None:
        packed = msgpack.packb({"fate": fate, "at": time.time(), "group": codec.encode_group(group)})
        self.file.write(packed or b"")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def closed_groups(folder: Path) -> Iterator[Closed]:
    """Every record of every file, in file order; a torn last record (a killed writer) ends its file."""
    for path in sorted(folder.glob("*.msgpack")):
        with path.open("rb") as file:
            unpacker = msgpack.Unpacker(file, raw=False, max_buffer_size=0)
            for record in unpacker:
                yield Closed(group=codec.decode_group_bytes(record["group"]), fate=record["fate"], at=record["at"])
