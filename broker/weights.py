"""The store of weight versions: whole folders, named by version and epoch, that never change once they are there.

For: files. Not for: which version is live (the broker says so), tensors (the learner writes, engines read), or
transport beyond a shared folder. Layout under the root:

    versions/000012-e003/{model.safetensors, batch.msgpack, manifest.json}
    checkpoints/000020-e003/            what the learner saved, and checkpoint.json
    epochs/000003                       one empty file per trainer epoch, made by exclusive create

A folder is written under a temporary name and renamed: it is there whole or not at all. Batch, manifest and
checkpoints are fsynced; version tensors are not, since a checkpoint and the recorded batches rebuild them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import msgpack

from broker import codec
from broker.contract import Announcement, Books, OpenGroup
from broker.errors import Broken
from broker.messages import Group

TENSORS = "model.safetensors"
BATCH = "batch.msgpack"
MANIFEST = "manifest.json"
PATH = re.compile(r"(versions|checkpoints)/[0-9]{1,18}-e[0-9]{1,18}")
"""Of a folder in the store, from its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Fixed sequences and the log-probs the trainer computed for them with these weights."""

    contexts: tuple[tuple[Any, ...], ...] = ()
    continuations: tuple[tuple[Any, ...], ...] = ()
    logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a version is, where it came from, and the books at the moment its batch was chosen."""

    version: int
    epoch: int
    parent_epoch: int
    """Epoch of version - 1."""
    groups: tuple[str, ...]
    """Ids trained in the step to this version, in training order."""
    seed: int
    digest: str
    """SHA-256 of the tensor file."""
    books: Books
    canary: Canary = field(default_factory=Canary)

    @property
    def path(self) -> str:
        return version_path(self.version, self.epoch)

    @property
    def announcement(self) -> Announcement:
        return Announcement(version=self.version, epoch=self.epoch, path=self.path, digest=self.digest)


def version_path(version: int, epoch: int) -> str:
    return f"versions/{version:06d}-e{epoch:03d}"


class VersionStore:
    """One run's store folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("versions", "checkpoints", "epochs"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def folder(self, path: str) -> Path:
        """Raises Broken for a path that is none of a version or checkpoint, or that leads out of the store: paths come
        from the server, and whoever writes there must not choose files elsewhere.
        """
        folder = self.root / path
        if PATH.fullmatch(path) is None or not folder.resolve().is_relative_to(self.root.resolve()):
            raise Broken(
                f"{path[:80]!r} names nothing in the store {self.root}; it is neither read nor written; find out who "
                "wrote it into the run's records"
            )
        return folder

    def claim_epoch(self, above: int) -> int:
        """A trainer epoch never given before, larger than `above`."""
        known = [int(path.name) for path in (self.root / "epochs").iterdir() if path.name.isdigit()]
        epoch = max([above, *known]) + 1
        while True:
            try:
                os.close(os.open(self.root / "epochs" / f"{epoch:06d}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                epoch += 1
            else:
                fsync_folder(self.root / "epochs")
                return epoch

    def clear_drafts(self, *, older_than_s: float, now: float) -> None:
        """Delete what trainers that were killed left half written. A younger one may be a fenced trainer's, which must
        hear that it is fenced and not that its files are gone.
        """
        for folder in self.root.glob("*/.*.[0-9]*"):
            with contextlib.suppress(FileNotFoundError):
                if now - folder.stat().st_mtime > older_than_s:
                    shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def writing(self, path: str) -> Generator[Path]:
        """A temporary folder that becomes `path` when the block ends well and vanishes when it does not."""
        target = self.folder(path)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            yield draft
            if target.exists():
                raise Broken(
                    f"{target} exists already; a version's content never changes, so this step is dropped; restart "
                    f"the trainer"
                )
            draft.rename(target)
            fsync_folder(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def manifests(self) -> list[Manifest]:
        """Manifests of all whole versions, by version and epoch."""
        found: list[Manifest] = []
        for folder in sorted((self.root / "versions").glob("[0-9]*")):
            with contextlib.suppress(FileNotFoundError):  # it may be pruned while we look
                found.append(read_manifest(folder))
        return found

    def checkpoints(self) -> list[tuple[int, int, Path]]:
        """(version, epoch, folder) of whole checkpoints, oldest first."""
        found: list[tuple[int, int, Path]] = []
        for folder in sorted((self.root / "checkpoints").glob("[0-9]*")):
            version, _, epoch = folder.name.partition("-e")
            found.append((int(version), int(epoch), folder))
        return sorted(found, key=lambda one: one[:2])

    def delete(self, path: str) -> None:
        shutil.rmtree(self.folder(path), ignore_errors=True)

    def drop_tensors(self, path: str) -> None:
        """Batch and manifest stay for replay; nobody serves the tensors any more."""
        (self.folder(path) / TENSORS).unlink(missing_ok=True)


def check_tensors(folder: Path, digest: str) -> None:
    """Raises Broken when the tensor file is not the announced one."""
    path = folder / TENSORS
    found = file_digest(path) if path.is_file() else "missing"
    if found != digest:
        raise Broken(
            f"{path}: digest {found[:12]}, announced {digest[:12]}; not served; the trainer must publish the version "
            f"again"
        )


def chain(manifests: Sequence[Manifest], version: int, epoch: int) -> list[Manifest]:
    """The lineage that ends in (version, epoch), oldest first, as far back as the store goes."""
    by_name = {(one.version, one.epoch): one for one in manifests}
    lineage: list[Manifest] = []
    while (version, epoch) in by_name:
        one = by_name[version, epoch]
        lineage.append(one)
        version, epoch = one.version - 1, one.parent_epoch
    return lineage[::-1]


def packed_batch(groups: Sequence[Group]) -> list[bytes]:
    """Each group as it stands in a batch file."""
    return [codec.encode_group(group) for group in groups]


def write_batch(folder: Path, packed: Sequence[bytes]) -> None:
    packer = msgpack.Packer()
    write_whole(folder / BATCH, b"".join(map(packer.pack, packed)))


def read_batch(folder: Path) -> list[Group]:
    with (folder / BATCH).open("rb") as file:
        return [codec.decode_group_bytes(packed) for packed in msgpack.Unpacker(file, max_buffer_size=0)]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_whole(folder / MANIFEST, json.dumps(asdict(manifest)).encode())


def read_manifest(folder: Path) -> Manifest:
    raw = cast("dict[str, Any]", json.loads((folder / MANIFEST).read_text()))
    books: dict[str, Any] = dict(raw["books"])
    books["open"] = {group: OpenGroup(**line) for group, line in cast("Mapping[str, Any]", books["open"]).items()}
    canary = {name: tuple(tuple(deep(row)) for row in rows) for name, rows in raw["canary"].items()}
    raw |= {"groups": tuple(raw["groups"]), "books": Books(**books), "canary": Canary(**cast("dict[str, Any]", canary))}
    return Manifest(**raw)


def deep(row: list[Any]) -> list[Any]:
    return [tuple(item) if isinstance(item, list) else item for item in row]


def write_whole(path: Path, content: bytes) -> None:
    """Written and on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
