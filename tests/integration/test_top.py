"""`tidemill top` on a run that trains: on a real terminal, through a server that dies, until `q`; lines in a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker import embedded_server
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.test_launcher import QUICK, SLOWER, Launched, lay_model, left_over

STEP = re.compile(rb"step (\d+)/100000")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = new_run_folder(load_run("addition", [*QUICK, *SLOWER]), tmp_path / "runs", datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    return folder


class Terminal:
    """A program on a terminal of its own, and what it has drawn."""

    def __init__(self, folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        env = {**os.environ, "TIDEMILL_RUNS": str(folder.parent), "COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
        command = [sys.executable, "-m", "deploy.cli", "top", folder.name]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.drawn = b""

    def until(self, condition: Callable[[], object], within_s: float = 30) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, self.drawn[-3000:].decode(errors="replace")
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.drawn += os.read(self.ours, 1 << 16)
                except OSError:  # the program has ended
                    return

    def forget(self) -> None:
        self.drawn = b""

    def type(self, key: bytes) -> None:
        os.write(self.ours, key)


@contextmanager
def running(folder: Path) -> Generator[Launched]:
    launched = Launched(folder)
    try:
        launched.reach(1)
        yield launched
    finally:
        launched.interrupt()
        launched.end(within_s=60)
        assert left_over(folder) == []


def test_top_is_drawn_again_and_again_through_a_server_that_dies_until_somebody_types_q(folder: Path) -> None:
    with running(folder):
        top = Terminal(folder)
        try:
            top.until(lambda: b"trainer-0" in top.drawn and b"nothing is stuck" in top.drawn)
            seen = max(map(int, STEP.findall(top.drawn)))
            server = embedded_server.pid(folder / "redis")
            assert server is not None
            os.kill(server, signal.SIGKILL)
            top.until(lambda: max(map(int, STEP.findall(top.drawn))) > seen + 2)
            top.forget()
            top.until(lambda: b"trainer-0" in top.drawn)
            top.type(b"q")
            top.until(lambda: top.process.poll() is not None, within_s=10)
            assert top.process.wait(5) == 0
            assert b"\x1b[?1049l" in top.drawn, "the terminal has its own screen back"
            assert b"Traceback" not in top.drawn
        finally:
            top.process.kill()
            top.process.wait()
            os.close(top.ours)


def test_top_in_a_pipe_writes_lines_and_ends_with_the_run(folder: Path) -> None:
    with running(folder) as launched:
        env = {**os.environ, "TIDEMILL_RUNS": str(folder.parent)}
        command = [sys.executable, "-m", "deploy.cli", "top", folder.name]
        top = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        assert top.stdout is not None
        first = top.stdout.readline()
        assert "training" in first and "step" in first
        launched.interrupt()
        rest, _ = top.communicate(timeout=60)
    assert top.returncode == 0, rest
    assert "Traceback" not in rest
