"""Files of the archive: names and numbers, frames and records in them, and which go when there are too many.

For: `archive` and `archive_index`. Not for: what a record says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgpack
import structlog
import zstandard

log = structlog.get_logger()

SUFFIX: Final = ".zst"
CHUNK: Final = 64 * 1024


class Place(NamedTuple):
    """Where a record lies: the frame's offset in the file, in bytes, and the record's number in the frame."""

    frame: int
    number: int


def file_records(path: Path, start: int = 0) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Records from the frame at offset `start` on. A frame that was cut short (a killed writer, or one that is at
    work) ends with its last whole record; a damaged one ends its file, with a warning.
    """
    with path.open("rb") as file:
        try:
            for offset, content in frames(file, start):
                unpacker = msgpack.Unpacker(raw=False, max_buffer_size=0, unicode_errors="surrogatepass")
                unpacker.feed(content)
                yield from ((Place(offset, number), record) for number, record in enumerate(unpacker))
        except (zstandard.ZstdError, ValueError, msgpack.UnpackException) as error:
            log.warning(
                "a file of the archive is damaged; what follows in it is not read", file=path.name, why=str(error)
            )


def frames(file: IO[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and content of each frame, the last one as far as it was written."""
    file.seek(start)
    offset, rest = start, b""
    while True:
        frame = zstandard.ZstdDecompressor().decompressobj()
        content, taken = bytearray(), 0
        while not frame.eof:
            chunk = rest or file.read(CHUNK)
            if not chunk:
                break
            rest, taken = b"", taken + len(chunk)
            content += frame.decompress(chunk)
        if not taken:
            return
        yield offset, bytes(content)
        if not frame.eof:
            return
        rest = frame.unused_data
        offset += taken - len(rest)


def number_of(path: Path) -> int:
    number = path.name.removesuffix(SUFFIX).rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


def process_of(path: Path) -> str:
    return path.name.removesuffix(SUFFIX).rpartition(".")[0]


def next_file(folder: Path, process: str) -> IO[bytes]:
    """A new file of the process: nothing is ever written behind what a killed one left."""
    numbers = [number_of(path) for path in folder.glob(f"*{SUFFIX}") if process_of(path) == process]
    number = max(numbers, default=0) + 1
    while True:
        try:
            return (folder / f"{process}.{number:06}{SUFFIX}").open("xb")
        except FileExistsError:
            number += 1


def pruned(folder: Path, limit: int) -> list[str]:
    """Delete the oldest files until `limit` bytes hold the rest; the newest of each process stays: it is written to.
    Answers the names of those deleted, oldest first.
    """
    found = [(path, path.stat()) for path in folder.glob(f"*{SUFFIX}") if path.exists()]
    newest: dict[str, int] = {}
    for path, _ in found:
        newest[process_of(path)] = max(newest.get(process_of(path), 0), number_of(path))
    total, gone = sum(stat.st_size for _, stat in found), list[str]()
    for path, stat in sorted(found, key=lambda one: (one[1].st_mtime, one[0].name)):
        if total <= limit:
            break
        if number_of(path) < newest[process_of(path)]:
            path.unlink(missing_ok=True)
            total -= stat.st_size
            gone.append(path.name)
    return gone
