"""A slot's spare: started beside the controller, watched, turned into the next one.

For: the supervisor. Not for: what happens inside it (`spare`), or the life of a controller (`controller_process`).

A spare saves time and nothing depends on it: one that is missing, not ready, or dead is done without, and the
controller is spawned as if there were none.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass, field

import structlog

from scheduler.controller_process import Command, has_exited, spawned
from scheduler.respawn import Exit, Leave, Limits, StopRun, decide_respawn

log = structlog.get_logger()

LIMITS = Limits(crashes=3, window_s=60.0)
"""A spare that dies so often is not tried again on this run."""


@dataclass(slots=True)
class SpareProcess:
    """The spare of one slot, on whatever run it serves."""

    wanted: Command | None = None
    """None: no spare is kept."""
    living: Command | None = None
    """What the process was started by; None once it is fenced."""
    process: subprocess.Popen[bytes] | None = None
    line: socket.socket | None = None
    """Its standard input: it says here that it is ready, and hears what it shall become."""
    is_ready: bool = False
    exits: list[Exit] = field(default_factory=list[Exit])
    started_at: float = 0.0
    not_before: float = 0.0

    def keep(self, command: Command | None) -> None:
        """From now on a spare started by this command is wanted, or none."""
        if command != self.wanted:
            self.fence()
            self.wanted, self.exits, self.not_before = command, [], 0.0

    def tick(self, now: float, *, settled: bool) -> None:
        """Notice its end and its word; start one where none is, once the slot's controller has settled."""
        if self.process is None:
            if settled and self.wanted is not None and now >= self.not_before:
                self.start(self.wanted, now)
        elif has_exited(self.process.pid):
            self.collect(now)
        else:
            self.listen()

    def start(self, command: Command, now: float) -> None:
        self.line, its_end = socket.socketpair()
        try:
            with its_end:
                self.process = spawned(command, stdin=its_end.fileno())
        except OSError as error:  # no memory, no disk: the controller may need what is left
            self.forget()
            self.not_before = now + LIMITS.window_s
            log.warning("no spare could be started", reason=str(error))
            return
        self.line.setblocking(False)
        self.living, self.started_at, self.is_ready = command, now, False
        log.info("spare started", pid=self.process.pid)

    def listen(self) -> None:
        """Hear that it is ready."""
        if self.line is None or self.is_ready:
            return
        with contextlib.suppress(OSError):
            said = self.line.recv(4096)
            self.is_ready = bool(said)
            if said:
                log.info("spare ready", pid=self.process and self.process.pid, **json.loads(said))

    def become(self, command: Command) -> subprocess.Popen[bytes] | None:
        """The living spare, which runs `command` from now on; None when none can: spawn one instead."""
        if self.process is None or self.line is None:
            return None
        self.listen()
        if not self.is_ready or has_exited(self.process.pid) or not self.fits(command) or not self.tell(command):
            self.fence()
            return None
        given, self.process = self.process, None
        self.forget()
        return given

    def fits(self, command: Command) -> bool:
        """A process cannot change its environment, cores and output any more."""
        mine = self.living
        return mine is not None and (mine.env, mine.cores, mine.output) == (command.env, command.cores, command.output)

    def tell(self, command: Command) -> bool:
        """Say what it becomes; whether it could be said."""
        assert self.line is not None
        try:
            self.line.sendall(json.dumps(command.argv[2:]).encode() + b"\n")  # without `python -m`
        except OSError:
            return False
        return True

    def fence(self) -> None:
        """End it at once; `tick` collects it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.forget()

    def forget(self) -> None:
        self.living, self.is_ready = None, False
        if self.line is not None:
            self.line.close()
            self.line = None

    def collect(self, now: float) -> None:
        """It ended by itself: because there is nothing to import, or by an accident; or we ended it."""
        assert self.process is not None
        code, fenced = self.process.wait(), self.living is None
        self.process = None
        self.forget()
        if fenced:
            return
        self.exits.append(Exit(code=code, at=now, lived_s=now - self.started_at))
        decision = decide_respawn(self.exits, now, LIMITS)
        log.info("spare ended", decision=type(decision).__name__, reason=decision.reason)
        if isinstance(decision, Leave | StopRun):
            self.wanted = None
        else:
            self.not_before = decision.at
