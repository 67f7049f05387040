"""One controller process: spawn, watch, start again, drain, fence. Used alike by the one-machine launcher and by slots.

For: the life of `python -m producers …` and `python -m consumers …` as operating-system processes. Not for: what they
do, when a slot moves (`planner`), or whether to restart (`respawn`, pure).

A controller is a process group of its own, so Ctrl-C does not reach it and its children end with it; it dies with the
process that spawned it, `kill -9` included. `tick` never waits: call it several times a second, always from the same
long-lived thread (the kernel ties the child's life to the thread that spawned it).
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.lifeline import die_with_parent
from scheduler.respawn import Decision, Exit, Leave, Limits, Respawn, decide_respawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to spawn, and where."""

    name: str
    """Of the process: `rollout-0`."""
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to ours."""
    cores: tuple[int, ...] = ()
    """Where it must stay; empty for anywhere."""
    output: Path
    """Standard output and error are appended here."""


def thread_environment(threads: int) -> dict[str, str]:
    """What a process that may use so many cores is told: never more threads, and none that spin while waiting."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",  # bars of libraries are for terminals, this writes into files
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),  # else a wrong path waits a minute for a hub
        "PYTHONUNBUFFERED": "1",
    }


class ControllerProcess:
    """A command that is kept running until it is drained, fenced, finished or given up."""

    def __init__(
        self,
        command: Command,
        limits: Limits | None = None,
        begin: Callable[[Command], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        """`begin` answers a process that runs the command; by default a new one."""
        self.command = command
        self.begin = begin or spawned
        self.limits = limits or Limits()
        self.exits: list[Exit] = []
        self.wanted = False
        self.progressed = False
        self.due: float | None = None
        self.kill_at: float | None = None
        self.started_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the living process."""
        return self.process.pid if self.process is not None else None

    @property
    def is_over(self) -> bool:
        """No process now, and none to come."""
        return self.process is None and self.due is None

    def start(self, now: float) -> None:
        """Spawn it; from now on `tick` keeps it running."""
        self.wanted = True
        self.spawn(now)

    def tick(self, now: float) -> Decision | None:
        """Notice an end, start again what is due, kill what overran its drain. Answers when an end was noticed."""
        if self.process is None:
            if self.due is not None and now >= self.due:
                self.spawn(now)
            return None
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_group()
        return self.ended(now) if has_exited(self.process.pid) else None

    def note_progress(self) -> None:
        """It has finished a unit of work in this life: an end now is no crash on start."""
        self.progressed = True

    def drain(self, now: float, within_s: float) -> None:
        """Ask it to finish or give back what it holds; whatever is left of it after `within_s` is killed, or at the
        deadline that it was given before, if that is earlier.
        """
        self.wanted, self.due = False, None
        if self.process is not None:
            self.kill_at = min(now + within_s, self.kill_at or math.inf)
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would not hear it

    def fence(self) -> None:
        """End it at once, with its children: its work belongs to somebody else now. Never started again."""
        self.wanted, self.due = False, None
        self.kill_group()

    def spawn(self, now: float) -> None:
        self.due, self.started_at, self.progressed = None, now, False
        self.process = self.begin(self.command)

    def ended(self, now: float) -> Decision:
        """Collect the dead process and what it left of its group, and decide what follows."""
        assert self.process is not None
        self.kill_group()  # before it is collected: until then nobody else can have its number
        code = self.process.wait()
        self.process, self.kill_at = None, None
        self.exits.append(Exit(code=code, at=now, lived_s=now - self.started_at, progressed=self.progressed))
        decision = decide_respawn(self.exits, now, self.limits) if self.wanted else Leave(reason="was told to stop")
        if isinstance(decision, Respawn):
            self.due = decision.at
        else:
            self.wanted = False
        return decision

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def kill_group(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self, lines: int = 12) -> str:
        """The end of what it wrote."""
        return last_lines(self.command.output, lines)


def spawned(command: Command, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A new process that runs the command and ends with the calling thread."""
    command.output.parent.mkdir(parents=True, exist_ok=True)
    with command.output.open("ab") as output:
        return subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=settle_in(command.cores, os.getpid()),  # noqa: PLW1509 - two system calls, nothing that locks
        )


def settle_in(cores: tuple[int, ...], parent: int) -> Callable[[], None]:
    """What the child does between fork and exec."""

    def child() -> None:
        die_with_parent(parent)
        if cores:
            os.sched_setaffinity(0, cores)

    return child


def has_exited(pid: int) -> bool:
    """Whether our child has ended, without collecting it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def last_lines(path: Path, lines: int) -> str:
    """The last lines of a text file that may be large or missing."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        return "\n".join(file.read().decode(errors="replace").strip().splitlines()[-lines:])
