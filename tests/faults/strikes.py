"""What can happen to a run in its middle: each strike is a function from the launch it hits to the launch that goes on.

For: killing, and taking data away. Not for: what must be true afterwards (`audit`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import redis

from broker import embedded_server
from tests.integration.test_launcher import Launched, left_over, until

ROLES = ("feeder-0", "rollout-0", "reward-0", "trainer-0")

LOST = "the server had lost the run"
"""What the trainer says when it restores the books from its store."""
BACK = "the embedded server had died"
"""What the launcher says when it starts the server again."""

Damage = Callable[[Path], None]
"""Done to the data of a server that is dead."""


class Observed(Launched):
    """A launch that remembers every version it was seen at, across all launches of the run."""

    def __init__(self, folder: Path, seen: list[int] | None = None) -> None:
        super().__init__(folder, PYTHONPATH=str(Path(__file__).parents[2]))
        self.seen: list[int] = [] if seen is None else seen

    def look(self) -> int:
        """The live version; -1 while the run is not open.

        A server that came back with less than it had says an older version until a trainer has looked into it; nobody
        can enter the run meanwhile.
        """
        seen = self.snapshot()
        version = int(seen["version"]) if seen.get("stage") in ("training", "ending", "finished") else -1
        if version >= 0 and self.seen[-1:] != [version]:
            self.seen.append(version)
        return version

    def pass_version(self, version: int, within_s: float) -> None:
        self.watch(lambda: self.look() >= version or self.process.poll() is not None, within_s)
        assert self.process.poll() is None, self.text()

    def finish(self, within_s: float) -> None:
        """To the run's end, watched all the way."""
        self.watch(lambda: self.look() >= -1 and self.process.poll() is not None, within_s)
        assert self.process.returncode == 0, self.text()

    def watch(self, condition: Callable[[], bool], within_s: float) -> None:
        """Wait for it. When it does not come, each process writes what it waits for into its log, and the run ends."""
        try:
            until(condition, within_s)
        except AssertionError:
            for process in self.snapshot()["processes"].values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process["pid"], signal.SIGUSR1)
            self.process.terminate()
            self.end(within_s=60)
            raise AssertionError(f"not within {within_s} s; see {self.folder}/logs:\n{self.text()}") from None

    def again(self) -> Observed:
        """`tidemill resume`."""
        return Observed(self.folder, self.seen)


Strike = Callable[[Observed], Observed]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def role(name: str) -> Strike:
    def strike(run: Observed) -> Observed:
        kill(run.pid_of(name))
        until(lambda: f"{name} was killed by signal 9" in run.text())
        return run

    return strike


def trainer_and_successor(run: Observed) -> Observed:
    """The second one dies as soon as it reports itself: while it loads, takes over or replays."""
    first = run.pid_of("trainer-0")
    kill(first)
    until(lambda: run.pid_of("trainer-0") != first, 60)
    kill(run.pid_of("trainer-0"))
    until(lambda: run.text().count("trainer-0 was killed by signal 9") == 2)
    return run


def launcher(run: Observed) -> Observed:
    kill(run.process.pid)
    run.process.wait()
    until(lambda: left_over(run.folder) == [])
    return run.again()


def server(damage: Damage, *others: str) -> Strike:
    """The server dies (and `others` with it) and comes back on damaged data; the launcher is held meanwhile."""

    def strike(run: Observed) -> Observed:
        pids = [run.pid_of(name) for name in others]
        os.kill(run.process.pid, signal.SIGSTOP)
        try:
            kill_server(run.folder, damage)
            for pid in pids:
                kill(pid)
        finally:
            os.kill(run.process.pid, signal.SIGCONT)
        until(lambda: BACK in run.text())
        return run

    return strike


def kill_server(folder: Path, damage: Damage) -> None:
    data = folder / "redis"
    pid = embedded_server.pid(data)
    assert pid is not None
    kill(pid)
    until(lambda: embedded_server.pid(data) is None)
    damage(data)


def everything(damage: Damage) -> Strike:
    """All at once, then `tidemill resume`."""

    def strike(run: Observed) -> Observed:
        pids = [run.pid_of(name) for name in ROLES]
        os.kill(run.process.pid, signal.SIGSTOP)
        for pid in pids:
            kill(pid)
        kill_server(run.folder, damage)
        return launcher(run)

    return strike


def flushall(run: Observed) -> Observed:
    with redis.Redis.from_url(embedded_server.address(run.folder / "redis")) as client:
        client.flushall()
    return run


def nothing_lost(data: Path) -> None:
    """A process that dies loses nothing that it wrote."""


def last_writes_lost(data: Path) -> None:
    """As after a power failure: the append-only file ends a good while, and in the middle of a command, earlier."""
    (log,) = (data / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size * 3 // 4)


def everything_lost(data: Path) -> None:
    shutil.rmtree(data / "appendonlydir")


STRIKES: dict[str, Strike] = {
    **{name: role(name) for name in ROLES},
    "trainer-0 and its successor": trainer_and_successor,
    "launcher": launcher,
    "server": server(nothing_lost),
    "server, last writes lost": server(last_writes_lost),
    "server, all lost": server(everything_lost),
    "server and trainer": server(nothing_lost, "trainer-0"),
    "server and trainer, all lost": server(everything_lost, "trainer-0"),
    "flushall": flushall,
    "everything": everything(nothing_lost),
    "everything, all lost": everything(everything_lost),
}

FORGOTTEN = {name for name in STRIKES if name.endswith("lost") or name == "flushall"}
"""After these the server knows less than the store."""
