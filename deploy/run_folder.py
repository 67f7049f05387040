"""Run folders: a new one for each launch, found again by name, owned by one launcher at a time.

For: names, the `latest` link, the lock. Not for: what lies inside (each part writes its own files there).
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
from collections.abc import Generator
from datetime import datetime
from pathlib import Path

from broker.errors import Misconfigured
from broker.settings import RUN_SETTINGS_FILE, RUNS_VARIABLE
from deploy.run_settings import RunSettings

LOCK = "launcher.lock"


def runs_root() -> Path:
    """`runs/` where the command was given, or what the environment names."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs"))


def new_run_folder(settings: RunSettings, root: Path, now: datetime) -> Path:
    """Make `NAME-YYYYmmdd-HHMMSS[-n]` with the settings in it and point `latest` at it.

    However many launches ask in the same second, each gets a folder of its own. Raises Misconfigured when none can be
    made.
    """
    stem = f"{settings.run.name}-{now:%Y%m%d-%H%M%S}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = made_exclusively(root, stem)
        settings.save(folder)
    except OSError as error:
        raise Misconfigured(
            f"no run folder can be made in {root.resolve()}: {error}; nothing was started; free the way"
        ) from None
    point_latest(root, folder.name)
    return folder


def made_exclusively(root: Path, stem: str) -> Path:
    number = 1
    while True:
        folder = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def point_latest(root: Path, name: str) -> None:
    """Replace the link in one step; of many launches the last wins."""
    draft = root / f".latest.{os.getpid()}"
    draft.unlink(missing_ok=True)
    draft.symlink_to(name)
    draft.replace(root / "latest")


def run_folders(root: Path) -> list[Path]:
    """All runs, oldest first."""
    found = [path.parent for path in root.glob(f"*/{RUN_SETTINGS_FILE}") if not path.parent.is_symlink()]
    return sorted(found, key=lambda folder: (folder / RUN_SETTINGS_FILE).stat().st_mtime)


def find_run(name: str, root: Path) -> Path:
    """The folder of a run: by name, path, or `latest`. Raises Misconfigured with the nearest name."""
    for path in (root / name, Path(name)):
        if (path / RUN_SETTINGS_FILE).is_file():
            return path.resolve()
    known = [folder.name for folder in run_folders(root)]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f'did you mean "{near[0]}"?' if near else "start one with `tidemill run addition`"
    raise Misconfigured(
        f"there is no run {name!r} in {root.resolve()} ({len(known)} runs there); nothing was done; {hint}"
    )


@contextlib.contextmanager
def launching(folder: Path) -> Generator[None]:
    """Be the only launcher of this run. Raises Misconfigured, naming the other's pid, when there is one."""
    with (folder / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = f"process {pid}" if (pid := lock.read().strip()) else "a process that has just begun"
            raise Misconfigured(
                f"{folder.name} is being run already, by {holder}; nothing was started; "
                f"look with `tidemill status {folder.name}`, or end that process first"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def launcher_pid(folder: Path) -> int | None:
    """The process that runs this run now, or None."""
    if not (folder / LOCK).is_file():
        return None
    with (folder / LOCK).open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read().strip() or 0) or None
    return None
