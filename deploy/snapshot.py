"""One look at a run, as a value: what the screen shows, the watchdog judges and the report adds up.

For: the facts and the arithmetic on them; pure. Not for: gathering them (`observer`) or drawing them (`progress`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.records import Record

RECENT_STEPS = 10
"""Speeds are means over so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process by its last report."""

    role: str
    pid: int
    stage: str = ""
    age_s: float = 0.0
    """Since the report, by the server's clock."""
    progress: int = 0
    busy: float | None = None
    """Share of the last seconds it worked; None before there are two reports."""
    version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the run is measured against."""

    steps: int
    staleness: int
    stop_when: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment; fields nobody knows yet keep their defaults."""

    run: str
    goal: Goal
    elapsed_s: float
    stage: str = "starting"
    detail: str = ""
    """More about the stage, such as the warm start's step and accuracy."""
    version: int = -1
    steps: Sequence[Record] = ()
    """The newest records of `steps.jsonl`, oldest first."""
    accuracy_start: float | None = None
    accuracy: float | None = None
    backlog: Mapping[str, int] = field(default_factory=dict[str, int])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    open_groups: Mapping[str, str] = field(default_factory=dict[str, str])
    """Open group → the stream of its live entry, oldest first."""
    processes: Mapping[str, Process] = field(default_factory=dict[str, Process])
    finished: str = ""

    @property
    def reward(self) -> float | None:
        return self.steps[-1]["reward"] if self.steps else None

    @property
    def staleness_mean(self) -> float | None:
        return mean(step["staleness"]["mean"] for step in self.steps)

    @property
    def staleness_max(self) -> int | None:
        return max((step["staleness"]["max"] for step in self.steps), default=None)

    @property
    def tokens_per_s(self) -> float | None:
        return per_second(self.steps, "tokens")

    @property
    def completions_per_s(self) -> float | None:
        return per_second(self.steps, "rollouts")

    def books(self, kind: str = "train") -> dict[str, int]:
        return books_of(self.counts, kind)

    def busy_by_role(self) -> dict[str, float]:
        """Mean over each role's processes, as far as known."""
        roles = dict.fromkeys(process.role for process in self.processes.values())
        shares = {
            role: mean(p.busy for p in self.processes.values() if p.role == role and p.busy is not None)
            for role in roles
        }
        return {role: share for role, share in shares.items() if share is not None}


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def per_second(steps: Sequence[Record], what: str) -> float | None:
    seconds = sum(step["seconds"] for step in steps)
    return sum(step[what] for step in steps) / seconds if seconds > 0 else None


def books_of(counts: Mapping[str, int], kind: str) -> dict[str, int]:
    """admitted = trained + retired + buried + open, for one kind of group (trained is 0 for `eval`)."""

    def total(name: str) -> int:
        return sum(
            value for key, value in counts.items() if key == f"{kind}.{name}" or key.startswith(f"{kind}.{name}.")
        )

    return {name: total(name) for name in ("admitted", "trained", "retired", "buried", "open")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Work and waiting of one process from its first report while the run was open to its last."""

    role: str
    first_busy_s: float
    first_wait_s: float
    busy_s: float
    wait_s: float

    @property
    def worked_s(self) -> float:
        return self.busy_s - self.first_busy_s

    @property
    def total_s(self) -> float:
        return self.worked_s + self.wait_s - self.first_wait_s


def lives_with(lives: Mapping[str, Life], beats: Mapping[str, Mapping[str, Any]]) -> dict[str, Life]:
    """`lives` (by `name pid`) brought up to these reports: a process started again is a new life."""
    result = dict(lives)
    for name, beat in beats.items():
        key, busy, wait = f"{name} {beat['pid']}", float(beat["busy_s"]), float(beat["wait_s"])
        known = result.get(key)
        first = (known.first_busy_s, known.first_wait_s) if known else (busy, wait)
        result[key] = Life(
            role=str(beat["role"]), first_busy_s=first[0], first_wait_s=first[1], busy_s=busy, wait_s=wait
        )
    return result


def busy_share(lives: Iterable[Life]) -> dict[str, float]:
    """Per role, the share of its processes' time that was work, over all their lives."""
    found = list(lives)
    shares: dict[str, float] = {}
    for role in dict.fromkeys(life.role for life in found):
        worked = sum(life.worked_s for life in found if life.role == role)
        total = sum(life.total_s for life in found if life.role == role)
        if total > 0:
            shares[role] = worked / total
    return shares
