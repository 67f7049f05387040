"""The processes of one case of `benchmarks.controllers`: started, looked at from outside, told to stop, heard.

For: processes and what the kernel says of them. Not for: what they do (`controllers_streams`, `controllers_central`).
They are forked from a server that has loaded everything once, so 256 of them start in seconds; each is a process of its
own, with its own interpreter, loop and connections.
"""

from __future__ import annotations

import asyncio
import faulthandler
import multiprocessing
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from benchmarks import controllers_central as central
from benchmarks import controllers_streams as streams
from benchmarks.controllers_load import Load, Moments, Ready
from broker import embedded_server
from broker.telemetry import configure

DEADLINE_S = 300
"""Of one case; a process that overruns it says where it stood and ends, and the benchmark with it."""
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["benchmarks.controllers_fleet", "benchmarks.controllers_report"])

Part = Callable[[str, Load, Ready, asyncio.Event], Coroutine[Any, Any, Moments]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one process, between two looks."""

    name: str
    cpu_s: float
    waited_s: float
    """Ready to run and without a core."""
    memory_mb: float
    """Resident at the second look."""


@dataclass(slots=True)
class Fleet:
    """Named processes, and a pipe to each."""

    address: str
    load: Load
    known: dict[str, psutil.Process] = field(default_factory=dict[str, psutil.Process])
    started: dict[str, tuple[BaseProcess, Connection]] = field(
        default_factory=dict[str, "tuple[BaseProcess, Connection]"]
    )

    def start(self, **parts: Part) -> None:
        """Start these and wait until each could take work."""
        for name, part in parts.items():
            ours, theirs = PROCESSES.Pipe()
            process = PROCESSES.Process(target=live, args=(part, self.address, self.load, theirs), name=name)
            process.start()
            theirs.close()
            self.started[name] = (process, ours)
        for name in parts:
            process, pipe = self.started[name]
            heard(name, pipe)
            self.known[name] = psutil.Process(process.pid)

    def cpu_s(self) -> dict[str, float]:
        return {name: (times := process.cpu_times()).user + times.system for name, process in self.known.items()}

    def waited_s(self) -> dict[str, float]:
        return {name: waited_s(process.pid) for name, process in self.known.items()}

    def watched(self, seconds: float) -> tuple[float, float, list[Usage]]:
        """From when to when it was looked at, and what each process used."""
        before, waited_before, began = self.cpu_s(), self.waited_s(), time.monotonic()
        time.sleep(seconds)
        ended, after, waited_after = time.monotonic(), self.cpu_s(), self.waited_s()
        return (
            began,
            ended,
            [
                Usage(
                    name=name,
                    cpu_s=after[name] - before[name],
                    waited_s=waited_after[name] - waited_before[name],
                    memory_mb=process.memory_info().rss / 2**20,
                )
                for name, process in self.known.items()
            ],
        )

    def stop(self) -> Moments:
        """Tell all to stop; what they noted."""
        together = Moments()
        for _, pipe in self.started.values():
            pipe.send("stop")
        for name, (process, pipe) in self.started.items():
            together.add(heard(name, pipe))
            process.join(DEADLINE_S)
        return together

    def end(self) -> None:
        """Whatever still lives after a failure."""
        for process, pipe in self.started.values():
            pipe.close()
            if process.is_alive():
                process.kill()
            process.join()


def waited_s(pid: int) -> float:
    """Of its first thread, which does the work in all of ours and in the server (`/proc/PID/schedstat`)."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        raise RuntimeError(f"process {pid} died while it was watched; nothing of this case counts") from None


def heard(name: str, pipe: Connection) -> Any:
    """The next word of a process. Raises when it died or says nothing."""
    try:
        if pipe.poll(DEADLINE_S):
            return pipe.recv()
    except EOFError:
        raise RuntimeError(f"{name} died; its traceback is above; nothing of this case counts") from None
    raise RuntimeError(f"{name} has said nothing for {DEADLINE_S} s; nothing of this case counts")


def live(part: Part, address: str, load: Load, pipe: Connection) -> None:
    """The whole life of a process: say when it is ready, work until told to stop, say what it noted."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    configure(None, process="", role="", console=False)

    async def main() -> Moments:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)

        async def ready() -> None:
            pipe.send("ready")

        found = await part(address, load, ready, stop)
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        return found

    pipe.send(asyncio.run(main()))


@contextmanager
def parallel(folder: Path, load: Load) -> Generator[Fleet]:
    """A new server with its append-only file on, trainer, controllers, feeder."""
    with embedded_server.serving(folder, maxmemory_mb=8192) as url, fleet(url, load) as one:
        one.known["server"] = psutil.Process(embedded_server.pid(folder))
        one.start(trainer=streams.training)
        one.start(**controllers(load, streams.controlling))
        one.start(feeder=streams.feeding)
        yield one


@contextmanager
def centralised(folder: Path, load: Load) -> Generator[Fleet]:
    """One process in the middle, trainer, workers."""
    with fleet(str(folder / "central.sock"), load) as one:
        one.start(central=central.commanding)
        one.start(trainer=central.learning)
        one.start(**controllers(load, central.working))
        yield one


ARCHITECTURES: Mapping[str, Callable[[Path, Load], Any]] = {"parallel": parallel, "central": centralised}


@contextmanager
def fleet(address: str, load: Load) -> Generator[Fleet]:
    one = Fleet(address, load)
    try:
        yield one
    finally:
        one.end()


def controllers(load: Load, work: Callable[..., Coroutine[Any, Any, Moments]]) -> dict[str, Part]:
    """Named by number; role alternates."""
    return {f"controller{number}": Named(work, number, roles) for number, roles in enumerate(load.roles())}


@dataclass(frozen=True, slots=True)
class Named:
    """One controller's part; a value that reaches another process."""

    work: Callable[..., Coroutine[Any, Any, Moments]]
    number: int
    roles: Any

    def __call__(self, address: str, load: Load, ready: Ready, stop: asyncio.Event) -> Coroutine[Any, Any, Moments]:
        return self.work(f"controller{self.number}", self.roles, address, load, ready, stop)
