"""What every role's process does around its loop: signals, heartbeat, exit codes.

For: `python -m producers …` and `python -m consumers …`. Not for: spawning them (`scheduler.controller_process`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import structlog

from broker.cancellation import end
from broker.contract import RunBroker
from broker.errors import Misconfigured, TidemillError, full_disk
from broker.settings import SLOT_VARIABLE, run_folder_settings, telemetry_section
from broker.telemetry import Meter, configure, hear_libraries

log = structlog.get_logger()

FAILED = 1
"""Exit code for an error that is none of ours."""

T = TypeVar("T")

Role = Callable[[Path, str, asyncio.Event], Awaitable[object]]
"""(run folder, name of the process, stop) → runs until the run is over or stop is set."""


def command(package: str, roles: Mapping[str, Role], arguments: list[str] | None = None) -> int:
    """The command line `python -m PACKAGE ROLE --run DIR [--name NAME]`; answers the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}")
    parser.add_argument("role", choices=sorted(roles))
    parser.add_argument("--run", type=Path, required=True, help="run folder")
    parser.add_argument("--name", default="", help="name of the process; default: the role")
    options = parser.parse_args(arguments)
    folder, name = options.run.resolve(), options.name or options.role
    try:
        settings = telemetry_section(run_folder_settings(folder))
        slot = os.environ.get(SLOT_VARIABLE, "")
        configure(folder, process=name, role=options.role, slot=slot, settings=settings)
    except Misconfigured as error:
        sys.stderr.write(f"Misconfigured: {error}\n")
        return error.exit_code
    log.info("begun")
    return run_role(lambda stop: roles[options.role](folder, name, stop))


def leave(code: int) -> NoReturn:
    """End the process with `code`, now.

    Roles close what they hold themselves. What the interpreter would still tear down is worth nothing and can cost
    much: native threads (of a gang that lost a rank, of an engine) abort an orderly end and the code that says what
    happened is lost; a large engine takes ten seconds over it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def loaded(stop: asyncio.Event, make: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What `make` answers, made in a thread. Told to leave meanwhile, the process ends at once: it holds nothing yet,
    and a thread that loads a model cannot be interrupted.
    """
    making = asyncio.ensure_future(asyncio.to_thread(make, *arguments, **options))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((making, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not making.done():
        log.info("told to leave while loading")
        leave(0)
    await end([stopping])
    hear_libraries()
    return making.result()


def run_role(main: Callable[[asyncio.Event], Awaitable[object]]) -> int:
    """Run `main` until it returns; SIGTERM sets its stop event. The exit code says what went wrong
    (`broker.errors`).
    """
    try:
        asyncio.run(with_signals(main))
    except TidemillError as error:
        return report(error)
    except BaseExceptionGroup as group:
        known = first_of(group)
        if known is None:
            traceback.print_exception(group)
            return 70
        return report(known)
    except Exception as error:
        if meant := full_disk(error):
            return report(meant)
        log.exception("failed", reason=f"{type(error).__name__}: {error}")
        return FAILED
    return 0


async def with_signals(main: Callable[[asyncio.Event], Awaitable[object]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, say_where)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the launcher decides
    await main(stop)


def say_where() -> None:
    """On SIGUSR1: what each task of this process waits for, into its log. A wedge can be asked where it stands."""
    for task in asyncio.all_tasks():
        frames = [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in chain_of(task)]
        log.warning("task", task=task.get_name(), at=" > ".join(frames))


def chain_of(task: asyncio.Task[object]) -> list[FrameType]:
    """Frames of the coroutines that await one another, outermost first."""
    frames: list[FrameType] = []
    waiting: object = task.get_coro()
    while waiting is not None:
        frame = (
            getattr(waiting, "cr_frame", None)
            or getattr(waiting, "gi_frame", None)
            or getattr(waiting, "ag_frame", None)
        )
        if frame is not None:
            frames.append(frame)
        waiting = (
            getattr(waiting, "cr_await", None)
            or getattr(waiting, "gi_yieldfrom", None)
            or getattr(waiting, "ag_await", None)
        )
    return frames


def report(error: TidemillError) -> int:
    log.error("stopped", kind=type(error).__name__, reason=str(error))
    return error.exit_code


def first_of(group: BaseExceptionGroup[BaseException]) -> TidemillError | None:
    for error in group.exceptions:
        found = first_of(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, TidemillError):
            return found
    return None


@contextlib.asynccontextmanager
async def beating(
    broker: RunBroker, name: str, role: str, meter: Meter, *, every_s: float = 1.0
) -> AsyncGenerator[None]:
    """Report the meter while the block runs, and at its end, however it ends, that the process has left; an unreachable
    server is the loop's matter, not the heartbeat's.
    """
    task = asyncio.create_task(beat(broker, name, role, meter, every_s))
    try:
        yield
    finally:
        await end([task])
        with contextlib.suppress(TidemillError):
            await broker.beat(name, {"role": role, "pid": os.getpid(), **meter.facts(), "left": True})


async def beat(broker: RunBroker, name: str, role: str, meter: Meter, every_s: float) -> None:
    """consumes: the meter   produces: a heartbeat   waits for: time   unblocked by: time

    Until it is ready it beats faster: somebody waits to hear so.
    """
    while True:
        with contextlib.suppress(TidemillError):
            await broker.beat(name, {"role": role, "pid": os.getpid(), **meter.facts()})
        await asyncio.sleep(every_s if meter.ready else every_s / 4)
