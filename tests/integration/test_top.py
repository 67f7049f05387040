"""`tidemill top` on a run that trains: on a real terminal, through a server that dies, until `q`; lines in a pipe."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker import embedded_server
from tests.command_line import among, command_line
from tests.integration.test_launcher import SLOWER, Launched, left_over, made, until

__all__ = ["made"]

STEP = re.compile(rb"step (\d+)/100000")


@pytest.fixture
def folder(made: Callable[..., Path]) -> Path:
    return made(*SLOWER)


class Terminal:
    """A program on a terminal of its own, and what it has drawn."""

    def __init__(self, folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        env = among(folder.parent, COLUMNS="120", LINES="40", TERM="xterm")
        command = command_line("top", folder.name)
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.drawn = b""

    def until(self, condition: Callable[[], object], within_s: float = 30) -> None:
        until(lambda: self.shows(condition), within_s)

    def shows(self, condition: Callable[[], object]) -> bool:
        """Whether it is so by now; a program that has ended draws no more, and then it must be."""
        has_ended = self.process.poll() is not None
        with contextlib.suppress(OSError):  # once the program has ended there is nothing to read
            while select.select([self.ours], [], [], 0)[0]:
                self.drawn += os.read(self.ours, 1 << 16)
        found = bool(condition())
        assert found or not has_ended, self.drawn[-3000:].decode(errors="replace")
        return found

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
        command, env = command_line("top", folder.name), among(folder.parent)
        top = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        assert top.stdout is not None
        first = top.stdout.readline()
        assert "training" in first and "step" in first
        launched.interrupt()
        rest, _ = top.communicate(timeout=60)
    assert top.returncode == 0, rest
    assert "Traceback" not in rest
