"""Who of the processes that a benchmark has started uses how many processor seconds, second by second.

For: taking a whole run's processor time apart by role, from outside, over any stretch of it. Not for: threads, nor
processes that live for less than a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil

from benchmarks.every_second import EverySecond

ROLE_WORDS = {
    "consumers trainer": "trainer",
    "producers rollout": "rollout",
    "consumers.rewards.rule_worker": "rules",
    "consumers reward": "reward",
    "producers feeder": "feeder",
    "valkey-server": "server",
    "redis-server": "server",
    "tidemill run": "launcher",
}
"""Words of a run's command lines → role."""


@dataclass(slots=True)
class Watched:
    """One process: its last command line, and its processor seconds by the clock."""

    command: str = ""
    at: list[float] = field(default_factory=list[float])
    """Seconds since 1970."""
    spent: list[float] = field(default_factory=list[float])


class ProcessorWatch(EverySecond):
    """Watches all descendants of this process while the block runs.

    >>> with ProcessorWatch() as watch:
    ...     subprocess.run(command)
    >>> watch.spent(begin, end, {"-m producers rollout": "rollout"})
    """

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[int, Watched] = {}

    def look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.note(process)

    def note(self, process: psutil.Process) -> None:
        watched = self.processes.setdefault(process.pid, Watched())
        used = process.cpu_times()
        watched.command = " ".join(process.cmdline()) or watched.command
        watched.at.append(time.time())
        watched.spent.append(used.user + used.system)

    def spent(self, begin: float, end: float, roles: Mapping[str, str]) -> dict[str, float]:
        """Role → processor seconds between two moments; a process belongs to the first role whose words its command
        line holds, else to `other`.
        """
        found: dict[str, float] = {}
        for watched in self.processes.values():
            role = next((role for words, role in roles.items() if words in watched.command), "other")
            found[role] = found.get(role, 0.0) + between(watched.at, watched.spent, begin, end)
        return {role: seconds for role, seconds in found.items() if seconds > 0}


def between(at: Sequence[float], spent: Sequence[float], begin: float, end: float) -> float:
    """What a rising count rose by, straight lines drawn between its samples."""
    first, last = np.interp([begin, end], at, spent)
    return float(last - first)
