"""The processes of a run on one machine: which there are, and their lives together.

For: the table of processes with their cores, and starting, watching and ending them all. Not for: one process's life
(`scheduler.controller_process`) or when the run ends (`local`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Fenced
from broker.settings import URL_VARIABLE
from consumers.settings import needs_judge
from deploy.cores import LIGHT, Share, Usable, budget
from deploy.run_settings import RunSettings
from deploy.slot_crew import slot_command, slot_shares
from deploy.snapshot import Process
from scheduler.controller_process import Command, ControllerProcess, thread_environment
from scheduler.last_words import readable
from scheduler.respawn import Decision, Leave, Limits, StopRun

TRAINER = "trainer-0"
TRAINER_CRASHES = 3
"""In a row, without a version in between: whatever it chokes on, it would choke on again."""
AGAIN_S = 1.0
"""Pause before a process that left although the run goes on is started again."""


def heavy_processes(settings: RunSettings) -> list[str]:
    """Those that compute all the time, the trainer first: what a run on slots has slots for."""
    roles = ("rollout", "judge") if needs_judge(settings.reward) else ("rollout",)
    return [TRAINER, *(f"{role}-{number}" for role in roles for number in range(settings.pool(role).processes))]


def core_shares(settings: RunSettings, usable: Usable) -> dict[str, Share]:
    """Every process of the run and its part of the machine."""
    if settings.scheduler.slots:
        return slot_shares(settings, usable)
    pin = settings.scheduler.cores == "auto"
    shares = budget(usable, heavy_processes(settings), ranks=settings.train.ranks, pin=pin)
    rules = {} if needs_judge(settings.reward) else {"reward-0": LIGHT}
    return {**shares, **rules, "feeder-0": LIGHT}


def role_command(name: str, folder: Path, share: Share, url: str, role: str = "") -> Command:
    """How the process called `rollout-0` is started; another name needs its role beside it."""
    role = role or name.rpartition("-")[0]
    if role in ("slot", "scheduler"):
        return slot_command(name, folder, share, url)
    package = "producers" if role in ("rollout", "feeder") else "consumers"
    return Command(
        name=name,
        argv=(sys.executable, "-m", package, role, "--run", str(folder), "--name", name),
        env={**thread_environment(share.threads), URL_VARIABLE: url},
        cores=share.cores,
        output=folder / "logs" / f"{name}.err",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What became of one process."""

    name: str
    decision: Decision
    last_words: str = ""
    """The end of what it wrote: much when the run stops for it, a line when it is started again."""


class Crew:
    """All processes of one run, by name."""

    def __init__(self, processes: Mapping[str, ControllerProcess]) -> None:
        self.processes = dict(processes)
        self.due_again: dict[str, float] = {}

    @classmethod
    def of(cls, folder: Path, settings: RunSettings, shares: Mapping[str, Share], url: str) -> Crew:
        limits = Limits(crashes=settings.scheduler.crash_limit, window_s=settings.scheduler.crash_window_s)
        strict = Limits(crashes=min(TRAINER_CRASHES, limits.crashes), window_s=limits.window_s)
        return cls(
            {
                name: ControllerProcess(role_command(name, folder, share, url), strict if name == TRAINER else limits)
                for name, share in shares.items()
            }
        )

    def start(self, now: float) -> None:
        for process in self.processes.values():
            process.start(now)

    def tick(self, now: float) -> list[Happened]:
        """Let every process be watched; those that ended since, with what follows."""
        for name in [name for name, at in self.due_again.items() if at <= now]:
            del self.due_again[name]
            self.processes[name].start(now)
        ends: list[Happened] = []
        for name, process in self.processes.items():
            decision = process.tick(now)
            if decision is not None:
                words = (
                    ""
                    if isinstance(decision, Leave)
                    else readable(process.last_words(12 if isinstance(decision, StopRun) else 1))
                )
                ends.append(Happened(name=name, decision=decision, last_words=words))
        return ends

    def start_again(self, name: str, now: float) -> None:
        """It left in good order although the run goes on: have it back in a moment."""
        self.due_again[name] = now + AGAIN_S

    def was_fenced(self, name: str) -> bool:
        exits = self.processes[name].exits
        return bool(exits) and exits[-1].code == Fenced.exit_code

    def note_progress(self, reports: Mapping[str, Process]) -> None:
        """Tell each process that its life bore fruit, from what it last reported."""
        for name, process in self.processes.items():
            report = reports.get(name)
            if report is not None and report.pid == process.pid and report.progress > 0:
                process.note_progress()

    def drain(self, now: float, within_s: float) -> None:
        """Ask all of them to end in good order, by a deadline."""
        self.due_again.clear()
        for process in self.processes.values():
            process.drain(now, within_s)

    def fence(self) -> None:
        """End all of them at once."""
        self.due_again.clear()
        for process in self.processes.values():
            process.fence()

    @property
    def alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.pid is not None]


def left_in_order(happened: Happened) -> bool:
    return isinstance(happened.decision, Leave)
