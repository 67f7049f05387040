"""Closed groups on disk: what every group said and what became of it, long after the server forgot.

For: whoever closes a group (`Archive`), and whoever reads all of them in a row (`closed_groups`). Not for: finding one
(`archive_index`), replay (a version's own batch file) or the books.

Each process appends to files of its own, `PROCESS.NUMBER.zst`, a new one at each start and whenever one is full; the
oldest go when the folder holds more than it may. A file is a row of zstd frames that any zstd tool reads; decompressed
it is a row of MessagePack maps, see `docs/archive.md`. A frame ends after 256 KiB, so that one record can be read
without its file, and whatever is written at once is flushed to its frame, so that a file can be read while it grows.

A group closed twice (its closer died between writing and closing) is there twice, and the last one counts; a closer
that heard that another was first withdraws what it wrote.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
import structlog
import zstandard
from numpy.typing import NDArray

from broker import codec
from broker.archive_files import SUFFIX, Place, file_records, next_file, process_of, pruned
from broker.errors import Poison
from broker.fields import pack
from broker.messages import Delivery, Entry, Group
from broker.settings import RunSection

log = structlog.get_logger()

Fate = Literal["trained", "retired", "buried"]
SCHEMA: Final = "closed/1"
FRAME: Final = 256 * 1024
"""Bytes before compression after which a frame ends."""
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """One record: the group as its closer saw it, and its end."""

    group: Group
    fate: Fate
    reason: str = ""
    """Why it was retired (`no_signal`, `stale`, `evaluated`, …) or buried; empty for a trained one."""
    version: int | None = None
    """The version it was trained into."""
    at: float
    """Seconds since 1970 by the closer's clock."""
    by: str = ""
    """The process that closed it."""
    stage: str = ""
    """The stream it was taken from last."""
    entry_id: str = ""
    """Its last entry there; the first part is the server's time in ms when it got there."""
    entry: Entry | None = None
    """That entry: floor, attempts, and in `trace` the way there."""
    advantages: NDArray[np.float32] | None = None
    """(G,) of a trained group."""

    def __str__(self) -> str:
        return f"trained into {self.version}" if self.fate == "trained" else f"{self.fate}: {self.reason}"


class Archive:
    """One process's files."""

    def __init__(self, folder: Path, process: str, limit_mb: int = 4096) -> None:
        """`limit_mb` is for the folder, so for the archives of all processes together."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.process, self.limit = folder, process, limit_mb * MIB
        self.file_limit = max(MIB, min(16 * MIB, self.limit // 32))
        self.compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        self.file: IO[bytes] | None = None
        self.frame: zstandard.ZstdCompressionObj | None = None
        self.in_frame = 0

    def append(
        self,
        group: Group,
        delivery: Delivery,
        *,
        fate: Fate,
        reason: str = "",
        version: int | None = None,
        advantages: NDArray[np.float32] | None = None,
    ) -> None:
        """To be called before the group is closed on the server: its body is deleted there."""
        end = ending(fate, reason, version, advantages)
        self.write({**end, **way(delivery), **summary(group), "group": codec.encode_group(group)})

    def append_trained(
        self,
        groups: Sequence[Group],
        packed: Sequence[bytes],
        deliveries: Sequence[Delivery],
        advantages: Sequence[NDArray[np.float32]],
        *,
        version: int,
    ) -> None:
        """A whole batch, before its commit; `packed` is each group as `codec.encode_group` packs it."""
        self.write(
            *(
                {**ending("trained", "", version, credit), **way(delivery), **summary(group), "group": body}
                for group, body, delivery, credit in zip(groups, packed, deliveries, advantages, strict=True)
            )
        )

    def withdraw(self, group_id: str) -> None:
        """The last record written here of this group says something that did not happen."""
        self.write({"withdrawn": group_id})

    def write(self, *records: dict[str, Any]) -> None:
        self.file = self.file or next_file(self.folder, self.process)
        for record in records:
            packed = pack({"schema": SCHEMA, "at": time.time(), "by": self.process, **record})
            self.frame = self.frame or self.compressor.compressobj()
            self.file.write(self.frame.compress(packed))
            self.in_frame += len(packed)
            if self.in_frame >= FRAME:
                self.file.write(self.frame.flush())
                self.frame, self.in_frame = None, 0
        if self.frame:
            self.file.write(self.frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        self.file.flush()
        if self.file.tell() >= self.file_limit:
            self.close()
            self.make_room()

    def make_room(self) -> None:
        gone = pruned(self.folder, self.limit)
        if gone:
            log.warning(
                "the oldest closed groups were deleted: the archive is full",
                files=len(gone),
                first=gone[0],
                limit_mb=self.limit // MIB,
                mend="set run.keep_groups_mb higher in the next run, or copy groups/ away while this one goes on",
            )

    def close(self) -> None:
        """Whoever writes again goes on in a new file."""
        if self.file is not None:
            self.file.write(self.frame.flush() if self.frame else b"")
            self.file.close()
        self.file, self.frame, self.in_frame = None, None, 0


def archive_of(folder: Path, process: str, run: RunSection) -> Archive | None:
    """The archive of one process of the run in `folder`, if the run keeps its groups."""
    return Archive(folder / "groups", process, run.keep_groups_mb) if run.keep_groups else None


def ending(
    fate: Fate, reason: str, version: int | None, advantages: NDArray[np.float32] | None = None
) -> dict[str, Any]:
    end: dict[str, Any] = {"fate": fate, "reason": reason, "version": version}
    return end if advantages is None else {**end, "advantages": advantages.astype("<f4").tobytes()}


def way(delivery: Delivery) -> dict[str, Any]:
    """Where it was taken from."""
    entry = {name.decode(): value for name, value in codec.encode_entry(delivery.entry).items()}
    return {"stage": delivery.stream, "entry_id": delivery.entry_id, "entry": entry}


def summary(group: Group) -> dict[str, Any]:
    """What lists and filters need, beside the packed group, so that an index need not decode it."""
    rollouts = group.rollouts
    versions = None if rollouts is None else [rollouts.oldest_version, rollouts.newest_version]
    return {
        "id": group.id,
        "kind": group.kind,
        "reward": group.reward,
        "length": group.tokens / max(1, group.prompt.size),
        "sampled": versions,
    }


def closed_groups(folder: Path) -> Iterator[Closed]:
    """Every record that was not withdrawn, file by file; one group may come more than once, see `at`."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    void = withdrawn(paths)
    for path in paths:
        for place, record in file_records(path):
            if "withdrawn" not in record and (path.name, place) not in void:
                yield closed_of(record)


def withdrawn(paths: Sequence[Path]) -> set[tuple[str, Place]]:
    """Which records do not count."""
    last: dict[tuple[str, str], tuple[str, Place]] = {}
    void: set[tuple[str, Place]] = set()
    for path in paths:
        for place, record in file_records(path):
            if "withdrawn" not in record:
                last[process_of(path), record["id"]] = path.name, place
            elif said := last.pop((process_of(path), record["withdrawn"]), None):
                void.add(said)
    return void


def closed_of(record: dict[str, Any]) -> Closed:
    """Raises Poison for a record of another schema."""
    if record.get("schema") != SCHEMA:
        raise Poison(
            f"a record of the archive is of schema {record.get('schema')!r}, this version reads {SCHEMA}; it is not "
            "shown; read it with the version that wrote it"
        )
    advantages = record.get("advantages")
    return Closed(
        group=codec.decode_group_bytes(record["group"]),
        **{name: record[name] for name in ("fate", "reason", "version", "at", "by", "stage", "entry_id")},
        entry=codec.decode_entry({name.encode(): value for name, value in record["entry"].items()}),
        advantages=None if advantages is None else np.frombuffer(advantages, "<f4"),
    )
