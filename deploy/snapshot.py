"""One look at a run, as a value: what the screens show, `stuck` and the watchdog judge, and the report adds up.

For: the facts and the arithmetic on them; pure. Not for: gathering them (`observer`), judging (`stuck`) or drawing them
(`progress`, `screen`). Times are ages in seconds by the server's clock, as of the look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.reports import SILENT_S
from broker.standing import ServerStanding, StreamStanding
from deploy.records import Record
from deploy.run_settings import RunSettings

RECENT_STEPS = 10
"""Speeds are means over so many steps."""
PREPARING = "preparing the model"
"""Stage of a run whose version 0 is being made; no process of its roles lives yet."""
TRAINING = "training"
WAITING_FOR_THE_TRAINER = "waiting for the trainer"
"""Stage of a run that no trainer has opened on this server."""


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
    held: int = 0
    """Groups in hand."""
    items: int = 0
    """Groups finished."""
    ready: bool = False
    """Loaded: it takes whatever work there is."""
    left: bool = False
    """It said goodbye."""

    @property
    def lives(self) -> bool:
        return not self.left and self.age_s <= SILENT_S

    @property
    def silent(self) -> bool:
        """Frozen, dead or cut off: it reports no more and did not say goodbye."""
        return not self.left and self.age_s > SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot by its record and its last report."""

    state: str
    """`moving`, `serving`, `draining`, `vacant`, `parked` or `dead` (silent)."""
    pool: str
    """Whose work it does now."""
    wanted: str
    """The pool its record says; empty: none."""
    pinned: bool = False
    for_s: float = 0.0
    """In this state."""
    age_s: float = 0.0
    """Since its last report."""
    held: int = 0
    moves: int = 0
    devices: str = ""
    why: str = ""
    """What it waits for or failed of, else why it is where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Who takes from one work stream: slots, or processes where placement is fixed."""

    name: str
    stream: str
    slots: bool
    """Of slots; else of processes."""
    wanted: int
    serving: int
    """Alive and loaded."""
    busy: int
    """With groups in hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the scheduler decided last."""

    sentence: str
    age_s: float
    leader: str = ""
    lease_left_s: float | None = None
    """Negative: for so long nobody has led. None: nobody ever did, or the last one gave the lease back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the run is measured against."""

    steps: int
    staleness: int
    stop_when: str = ""


def goal_of(settings: RunSettings) -> Goal:
    return Goal(steps=settings.run.steps, staleness=settings.train.staleness, stop_when=settings.run.stop_when)


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
    step_age_s: float | None = None
    """Since the last step was written down."""
    streams: Mapping[str, StreamStanding] = field(default_factory=dict[str, StreamStanding])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    open: int = 0
    cap: int = 0
    """Most training groups that may be open."""
    groups: int = 0
    """B, groups per version."""
    dead: int = 0
    """Buried groups that lie in `dead`."""
    dead_limit: int = 0
    """With so many of them nothing new is admitted; 0: however many."""
    processes: Mapping[str, Process] = field(default_factory=dict[str, Process])
    pools: Sequence[Pool] = ()
    slots: Mapping[str, Slot] = field(default_factory=dict[str, Slot])
    decision: Decision | None = None
    server: ServerStanding = field(default_factory=ServerStanding)
    unanswered_s: float = 0.0
    """The server has not answered for so long; everything it would have said is so old."""
    unanswered: str = ""
    """What came instead of its answer."""
    full_s: float = 0.0
    """It has been refusing new work for want of memory for so long, as far as this observer saw."""
    is_open: bool = False
    """A trainer has opened the books on this very server process."""
    lease_s: float = 10.0
    """A reader that renews nothing for three of these is dead."""
    live: bool = True
    """Read from the server just now; else from the run's folder."""
    share: float | None = None
    """How much of the stage is done, 0 to 1; None where nobody can tell."""
    finished: str = ""
    newest_dead: str = ""
    """Why the newest group in `dead` was buried."""

    @property
    def backlog(self) -> dict[str, int]:
        """Undelivered + pending of each work stream."""
        return {name: stream.backlog for name, stream in self.streams.items()}

    @property
    def missing(self) -> int:
        """Open groups without an entry: restored, and to be admitted again by the feeder."""
        return self.open - sum(self.backlog.values())

    def of_roles(self, *roles: str) -> dict[str, Process]:
        return {name: process for name, process in self.processes.items() if process.role in roles}

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
    places: float = 0.0
    """Groups it works on at once; 0 where it did not say."""
    half_at: float = 0.0
    """Groups in hand at which it has half the speed it comes near to with many."""

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
            role=str(beat["role"]),
            first_busy_s=first[0],
            first_wait_s=first[1],
            busy_s=busy,
            wait_s=wait,
            places=float(beat.get("places", 0.0)),
            half_at=float(beat.get("half_at", 0.0)),
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
