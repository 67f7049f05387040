"""Real processes under a controller: killed, crashing, deaf, with children of their own, orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.controller_process import Command, ControllerProcess, thread_environment
from scheduler.respawn import Leave, Limits, Respawn, StopRun
from tests.integration.test_launcher import until

PATIENT = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
POLITE = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "print('ready', flush=True); time.sleep(60)"
)
PARENT = (
    "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    "print('child', c.pid, flush=True); print('ready', flush=True); time.sleep(60)"
)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., ControllerProcess]]:
    made: list[ControllerProcess] = []

    def start(program: str, **more: Any) -> ControllerProcess:
        argv = (sys.executable, "-c", program)
        command = Command(name="p", argv=argv, output=tmp_path / f"p{len(made)}.err", **more)
        process = ControllerProcess(command, Limits(crashes=3, window_s=60))
        process.start(time.monotonic())
        made.append(process)
        return process

    yield start
    for process in made:
        process.fence()
        until(lambda process=process: process.tick(time.monotonic()) or process.is_over)


def ready(process: ControllerProcess) -> None:
    until(lambda: process.last_words(1) == "ready")


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_process_comes_back(started: Callable[..., ControllerProcess]) -> None:
    process = started(PATIENT)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    decision = until(lambda: process.tick(time.monotonic()))
    assert isinstance(decision, Respawn)
    until(lambda: process.tick(time.monotonic()) or process.pid)
    assert process.pid != first


def test_a_crash_loop_ends_with_the_last_words(started: Callable[..., ControllerProcess]) -> None:
    process = started("raise RuntimeError('out of luck')")
    decisions = []
    until(lambda: decisions.append(process.tick(time.monotonic())) or process.is_over)
    (*again, last) = [decision for decision in decisions if decision]
    assert [type(decision) for decision in again] == [Respawn, Respawn]
    assert isinstance(last, StopRun)
    assert "out of luck" in process.last_words()


def test_draining_asks_first(started: Callable[..., ControllerProcess]) -> None:
    process = started(POLITE)
    ready(process)
    process.drain(time.monotonic(), within_s=30)
    assert isinstance(until(lambda: process.tick(time.monotonic())), Leave)
    assert process.exits[-1].code == 0
    assert process.is_over


def test_a_process_that_does_not_listen_is_killed_at_the_deadline(started: Callable[..., ControllerProcess]) -> None:
    process = started(DEAF)
    ready(process)
    process.drain(time.monotonic(), within_s=0.2)
    until(lambda: process.tick(time.monotonic()))
    assert process.exits[-1].code == -9
    assert process.exits[-1].lived_s >= 0.2


def test_a_second_order_to_drain_never_puts_the_deadline_off(started: Callable[..., ControllerProcess]) -> None:
    process = started(DEAF)
    ready(process)
    asked = time.monotonic()
    process.drain(asked, within_s=1)
    process.drain(asked, within_s=600)
    until(lambda: process.tick(time.monotonic()))
    assert process.exits[-1].code == -9


def test_a_stopped_process_can_still_be_drained(started: Callable[..., ControllerProcess]) -> None:
    process = started(POLITE)
    ready(process)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    process.drain(time.monotonic(), within_s=30)
    until(lambda: process.tick(time.monotonic()))
    assert process.exits[-1].code == 0


def test_children_end_with_their_process(started: Callable[..., ControllerProcess]) -> None:
    process = started(PARENT)
    ready(process)
    child = int(process.last_words(2).split()[1])
    assert alive(child)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.tick(time.monotonic()))
    until(lambda: not alive(child))


def test_fencing_ends_it_at_once_and_for_good(started: Callable[..., ControllerProcess]) -> None:
    process = started(DEAF)
    ready(process)
    process.fence()
    assert isinstance(until(lambda: process.tick(time.monotonic())), Leave)
    assert process.tick(time.monotonic() + 100) is None
    assert process.is_over


def test_it_stays_on_its_cores_and_is_told_its_threads(started: Callable[..., ControllerProcess]) -> None:
    core = min(os.sched_getaffinity(0))
    program = (
        "import os; told = os.environ; "
        "print(sorted(os.sched_getaffinity(0)), told['OMP_NUM_THREADS'], told['OMP_WAIT_POLICY'], flush=True)"
    )
    process = started(program, cores=(core,), env=thread_environment(3))
    until(lambda: process.tick(time.monotonic()))
    assert process.last_words(1) == f"[{core}] 3 PASSIVE"


def test_kill_9_of_the_launcher_leaves_no_orphan(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from scheduler.controller_process import Command, "
        "ControllerProcess\n"
        f"command = Command(name='p', argv=(sys.executable, '-c', {PATIENT!r}), "
        f"output=Path({str(tmp_path / 'p.err')!r}))\n"
        "process = ControllerProcess(command); process.start(0.0); print(process.pid, flush=True); time.sleep(60)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    child = int(launcher.stdout.readline())
    assert alive(child)
    launcher.kill()
    launcher.communicate()
    until(lambda: not alive(child))
