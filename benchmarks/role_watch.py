"""Memory and processor time of every role of a run and of its server, looked at from outside while the run goes on.

For: `growth`. Not for: threads, what memory holds, or the processor time of a run as a whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis

from benchmarks.every_second import EVERY_S, EverySecond
from broker import embedded_server

MB = 1 << 20
SERVER = "redis"


@dataclass(slots=True)
class Series:
    """What was seen of one role, look after look; its children are counted with it."""

    at: list[float] = field(default_factory=list[float])
    """Seconds since 1970."""
    rss_mb: list[float] = field(default_factory=list[float])
    """Resident, pages shared with others counted whole."""
    pss_mb: list[float] = field(default_factory=list[float])
    """Resident, a page that n processes share counted as 1/n of a page: these add up."""
    cpu_s: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class Held:
    """What the server says of itself."""

    at: list[float] = field(default_factory=list[float])
    used_mb: list[float] = field(default_factory=list[float])
    """`used_memory`: what it has allocated for data and clients."""


class RoleWatch(EverySecond):
    """Watches the run that a `launch` under `root` makes, while the block runs.

    >>> with RoleWatch(root) as watch:
    ...     launch(root, "addition", ["run.steps=1000"])
    >>> watch.roles["trainer-0"].rss_mb
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.roles: dict[str, Series] = {}
        self.server = Held()

    def look(self) -> None:
        for name, processes in by_role(psutil.Process()).items():
            self.note(name, processes)
        with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError, OSError):
            self.note_server()

    def note(self, name: str, processes: list[psutil.Process]) -> None:
        """A role of which a process ends meanwhile is left out of this look."""
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = [one.memory_full_info() for one in processes]
            times = [one.cpu_times() for one in processes]
            series = self.roles.setdefault(name, Series())
            series.at.append(time.time())
            series.rss_mb.append(sum(one.rss for one in memory) / MB)
            series.pss_mb.append(sum(one.pss for one in memory) / MB)
            series.cpu_s.append(sum(one.user + one.system for one in times))

    def note_server(self) -> None:
        data = self.root / "latest" / "redis"
        if embedded_server.pid(data) is None:
            return
        with redis.Redis.from_url(embedded_server.address(data), socket_timeout=EVERY_S) as client:
            used: int = client.info("memory")["used_memory"]
        self.server.at.append(time.time())
        self.server.used_mb.append(used / MB)


def by_role(own: psutil.Process) -> dict[str, list[psutil.Process]]:
    """The descendants of a process by the role they have; one without a name is its parent's."""
    found: dict[str, list[psutil.Process]] = {}
    names: dict[int, str] = {}
    for process in own.children(recursive=True):  # parents come before their children
        with contextlib.suppress(psutil.NoSuchProcess):
            name = named(process.cmdline(), lambda process=process: names.get(process.ppid(), "launcher"))
            names[process.pid] = name
            found.setdefault(name, []).append(process)
    return found


def named(command: list[str], otherwise: Callable[[], str]) -> str:
    if "--name" in command[:-1]:
        return command[command.index("--name") + 1]
    if command and any(word in Path(command[0]).name for word in ("valkey", "redis")):
        return SERVER
    return otherwise()
