"""Finding closed groups: by id, by what they say, by reward, length, version and fate; among 100,000 in a moment.

For: `show`, the rollout browser, whoever wants some of the groups and not all. Not for: open groups (the server has
them), or reading all in a row (`archive.closed_groups`).

>>> with GroupIndex(run_folder / "groups") as index:
...     index.refresh()                                       # what was closed since the last time
...     page = index.search(text="17+25", reward=(0.1, 0.9), fate="trained", sort="reward", limit=50)
...     whole = index.read(page.rows[0].id)

The index is an SQLite file beside the archive, `index.sqlite`. It holds nothing that is not in the archive: it is made
anew when it is missing, damaged or of another version, and kept in memory when the folder cannot be written to. Several
processes may use it at once, and several threads one `GroupIndex`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from broker.archive import SCHEMA, Closed, closed_of
from broker.archive_files import SUFFIX, Place, file_records, process_of
from broker.archive_query import Bounds, Sort, conditions, order
from broker.archive_summary import COLUMNS, NAMES, Page, Summary, summarised, values_of
from broker.messages import Kind

NAME: Final = "index.sqlite"
VERSION: Final = 1
WAIT_S: Final = 30.0

TABLES: Final = f"""
CREATE TABLE files (name TEXT PRIMARY KEY, frame INTEGER, taken INTEGER, size INTEGER);
CREATE TABLE groups (
  id TEXT, kind TEXT, task TEXT, fate TEXT, reason TEXT, trained INTEGER, oldest INTEGER, newest INTEGER, reward REAL,
  length REAL, siblings INTEGER, attempt INTEGER, at REAL, prompt TEXT, answer TEXT,
  place INTEGER PRIMARY KEY, file TEXT, frame INTEGER, number INTEGER, latest INTEGER);
CREATE TABLE said (place INTEGER PRIMARY KEY, text TEXT);
CREATE INDEX by_id ON groups (id, at);
CREATE INDEX by_file ON groups (file);
CREATE INDEX by_at ON groups (latest, at);
CREATE INDEX by_reward ON groups (latest, reward);
CREATE INDEX by_length ON groups (latest, length);
CREATE INDEX by_newest ON groups (latest, newest);
CREATE INDEX by_trained ON groups (latest, trained);
PRAGMA user_version = {VERSION};
"""
ADD: Final = (
    f"INSERT INTO groups ({COLUMNS}, file, frame, number, latest) VALUES ({', '.join('?' * len(NAMES))}, ?, ?, ?, 1)"  # noqa: S608
)


class GroupIndex:
    """One reader's handle on the index of a `groups/` folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.base = opened(folder / NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            self.base.close()

    def refresh(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Take in what was written since, and forget files that were deleted; answers how many records were new.

        `progress` hears bytes read and bytes to read: the first time may take seconds for a large run.
        """
        paths = {path.name: path for path in sorted(self.folder.glob(f"*{SUFFIX}"))}
        with self.lock:
            known: dict[str, int] = dict(self.base.execute("SELECT name, size FROM files"))
            for name in known.keys() - paths.keys():
                with self.changing():
                    self.forget(name)
            sizes = {name: path.stat().st_size for name, path in paths.items() if path.exists()}
            grown = {name: size for name, size in sizes.items() if size > known.get(name, 0)}
            new, read, whole = 0, 0, sum(grown.values())
            tell = progress or (lambda read, whole: None)
            for name, size in grown.items():
                with self.changing():
                    new += self.take_in(paths[name], size, lambda place, before=read: tell(before + place, whole))
                read += size
                tell(read, whole)
            return new

    @contextlib.contextmanager
    def changing(self) -> Generator[None]:
        """One change of the index, whole or not at all; other processes wait."""
        with self.base:
            self.base.execute("BEGIN IMMEDIATE")
            yield

    def take_in(self, path: Path, size: int, reached: Callable[[int], None]) -> int:
        """New records of one file, from the last frame that was begun on; `reached` hears where each frame begins."""
        found = self.base.execute("SELECT frame, taken FROM files WHERE name = ?", (path.name,)).fetchone()
        known, new = Place(*(found or (0, 0))), 0
        last = known
        with contextlib.suppress(FileNotFoundError):
            for place, record in file_records(path, known.frame):
                if place.number == 0:
                    reached(place.frame)
                if place >= known:
                    self.note(path.name, place, record)
                    last, new = Place(place.frame, place.number + 1), new + 1
        self.base.execute("REPLACE INTO files VALUES (?, ?, ?, ?)", (path.name, *last, size))
        return new

    def note(self, file: str, place: Place, record: dict[str, Any]) -> None:
        if record.get("schema") != SCHEMA:
            return
        if "withdrawn" in record:
            self.withdraw(file, record["withdrawn"])
            return
        found, said = summarised(record)
        again = self.base.execute("SELECT 1 FROM groups WHERE id = ? LIMIT 1", (found.id,)).fetchone() is not None
        added = self.base.execute(ADD, (*values_of(found), file, *place))
        self.base.execute("INSERT INTO said VALUES (?, ?)", (added.lastrowid, said))
        if again:
            self.point_at_latest(found.id)

    def withdraw(self, file: str, group: str) -> None:
        """What the process wrote last of the group, in this file or an earlier one."""
        theirs = process_of(self.folder / file) + "."
        last = "SELECT MAX(place) FROM groups WHERE id = ? AND substr(file, 1, ?) = ?"
        for (place,) in self.base.execute(last, (group, len(theirs), theirs)).fetchall():
            self.base.execute("DELETE FROM groups WHERE place = ?", (place,))
            self.base.execute("DELETE FROM said WHERE place = ?", (place,))
        self.point_at_latest(group)

    def point_at_latest(self, group: str) -> None:
        """Of several records of a group the last counts."""
        last = "(SELECT place FROM groups WHERE id = ? ORDER BY at DESC, place DESC LIMIT 1)"
        self.base.execute(f"UPDATE groups SET latest = (place = {last}) WHERE id = ?", (group, group))  # noqa: S608

    def forget(self, file: str) -> None:
        groups = self.base.execute("SELECT DISTINCT id FROM groups WHERE file = ?", (file,)).fetchall()
        self.base.execute("DELETE FROM said WHERE place IN (SELECT place FROM groups WHERE file = ?)", (file,))
        self.base.execute("DELETE FROM groups WHERE file = ?", (file,))
        self.base.execute("DELETE FROM files WHERE name = ?", (file,))
        for (group,) in groups:
            self.point_at_latest(group)

    def search(
        self,
        *,
        text: str = "",
        reward: Bounds = (None, None),
        length: Bounds = (None, None),
        version: Bounds = (None, None),
        trained: Bounds = (None, None),
        fate: str | None = None,
        kind: Kind | None = None,
        sort: Sort = "at",
        ascending: bool = False,
        offset: int = 0,
        limit: int = 50,
    ) -> Page:
        """Groups for which all of it holds, the newest first unless said otherwise.

        `text` is looked for in id, prompt and answers, whatever the case. Bounds are inclusive, None is no bound:
        `version` is the newest that sampled the group, `trained` the one it was trained into. `fate` is `trained`,
        `retired`, `buried`, or a reason such as `no_signal`.
        """
        where, values = conditions(text, reward, length, version, trained, fate, kind)
        with self.lock:
            (total,) = self.base.execute(f"SELECT COUNT(*) FROM groups WHERE {where}", values).fetchone()  # noqa: S608
            rows = self.base.execute(
                f"SELECT {COLUMNS} FROM groups WHERE {where} ORDER BY {order(sort, ascending)} LIMIT ? OFFSET ?",  # noqa: S608
                (*values, limit, offset),
            ).fetchall()
        return Page(total=total, rows=tuple(Summary(**dict(zip(NAMES, row, strict=True))) for row in rows))

    def read(self, group: str) -> Closed | None:
        """The record of a group that counts, whole; None when there is none (or its file was just deleted)."""
        with self.lock:
            lies = "SELECT file, frame, number FROM groups WHERE id = ? AND latest = 1"
            found = self.base.execute(lies, (group,)).fetchone()
        if found is None:
            return None
        file, *lies = found
        with contextlib.suppress(FileNotFoundError):
            for place, record in file_records(self.folder / file, lies[0]):
                if place == Place(*lies):
                    return closed_of(record)
        return None

    def read_all(self) -> Iterator[Closed]:
        """The record that counts of every group, file by file."""
        with self.lock:
            lie = self.base.execute("SELECT file, frame, number FROM groups WHERE latest = 1").fetchall()
        count = {(file, Place(frame, number)) for file, frame, number in lie}
        for file in sorted({file for file, _ in count}):
            with contextlib.suppress(FileNotFoundError):
                for place, record in file_records(self.folder / file):
                    if (file, place) in count:
                        yield closed_of(record)

    def ids(self) -> list[str]:
        with self.lock:
            return [group for (group,) in self.base.execute("SELECT id FROM groups WHERE latest = 1 ORDER BY at")]

    def counts(self) -> dict[str, int]:
        """Closed groups by fate and reason: `trained`, `retired no_signal`, `buried`."""
        why = "CASE fate WHEN 'retired' THEN reason ELSE '' END AS why"
        by = f"SELECT fate, {why}, COUNT(*) FROM groups WHERE latest = 1 GROUP BY fate, why ORDER BY 3 DESC"  # noqa: S608
        with self.lock:
            found = self.base.execute(by).fetchall()
        return {f"{fate} {why}".strip(): number for fate, why, number in found}


def opened(path: Path) -> sqlite3.Connection:
    """The index at `path`, made if need be; in memory when it cannot be kept there."""
    for _ in range(2):
        try:
            return prepared(path)
        except sqlite3.OperationalError:  # a folder that is not there, or not ours to write to
            break
        except sqlite3.DatabaseError:  # damaged, or of another version
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return prepared(":memory:")


def prepared(path: Path | str) -> sqlite3.Connection:
    """Raises DatabaseError when it is no index of this version, or cannot be written to."""
    base = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        base.execute("BEGIN IMMEDIATE")
        (version,) = base.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in TABLES.strip().split(";\n"):
                base.execute(statement)
        base.execute("COMMIT")
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"index of version {version}")
        base.execute("PRAGMA synchronous = OFF")  # what is lost is made anew
    except sqlite3.Error:
        base.close()
        raise
    return base
