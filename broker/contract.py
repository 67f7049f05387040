"""What a broker promises, one Protocol per kind of caller. Every broker passes `tests/contract`.

For: the seam between roles and transport. Not for: Redis (`redis_broker`), one process (`memory_broker`), bytes
(`codec`).

Every call may raise `Unavailable` (try again), `Backpressure` (full: wait), `Reset` (enter the run again) and, for
trainer calls, `Fenced` (a newer trainer lives: stop). A verb checks everything before its first write, so it happened
whole or not at all; a caller that lost the reply simply calls again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.messages import Delivery, Group, Kind
from broker.outcomes import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One weight version that may be served; (version, epoch) names it and its content never changes."""

    version: int
    epoch: int
    path: str
    """Folder of the version under the store's root."""
    digest: str
    """SHA-256 of the manifest's tensor list, checked by followers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """One line of the open set: the live entry of a group."""

    stream: str
    entry_id: str
    kind: Kind
    floor: int
    last_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Cursor, open groups and counts of a run, read in one script; `tick` says how many scripts had run."""

    tick: int
    cursor: int
    cursor_value: str
    open: Mapping[str, OpenGroup]
    counts: Mapping[str, int]
    exhausted: bool = False
    """The source has no more prompts after `cursor`: the last batch may be short."""

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a process learns when it looks at a run (`look`)."""

    exists: bool
    incarnation: int = 0
    epoch: int = 0
    tick: int = 0
    same_server: bool = True
    """False after a server restart that no trainer has looked into yet: the run is closed."""
    live: Announcement | None = None
    cap: int = 0
    eval_cap: int = 0
    finished: str = ""
    """Why the run ended; empty while it runs."""

    groups: int = 0
    """B, groups per version."""
    staleness: int = 0
    """η."""
    dead_limit: int = 0
    """Buried groups at which nothing new is admitted; 0: none."""

    @property
    def is_open(self) -> bool:
        return self.exists and self.same_server and self.incarnation > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One trained batch: the step from version-1 to `version`."""

    version: int
    epoch: int
    """Epoch in whose name the version was written (its path), not of the committer."""
    parent_epoch: int
    """Epoch of version-1, so that the line names its parent exactly."""
    digest: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Answer to `admit`."""

    cursor: int
    """The cursor as it is now: `expected + admitted`, or another feeder's."""
    admitted: int
    """How many of the offered groups entered (a prefix: there was no room for the rest)."""
    live: int
    room: int
    """Places left in the open set for this kind."""
    stopped: bool = False
    """So many groups are buried that nothing new enters until some are replayed or dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Measurement of one version on the held-out prompts."""

    version: int
    wanted: int
    """Groups to admit."""
    admitted: int = 0
    tally: Mapping[str, float] = field(default_factory=dict[str, float])
    """Sums over evaluated groups: always `n` and `reward`; per task `n.TASK`, `reward.TASK`."""

    @property
    def is_done(self) -> bool:
        return int(self.tally.get("n", 0)) >= self.wanted

    @property
    def accuracy(self) -> float | None:
        """Mean reward over the evaluated groups, once all are in."""
        return self.tally["reward"] / self.tally["n"] if self.is_done and self.tally else None


class RunBroker(Protocol):
    """What every role needs: find the run, enter it, see its facts."""

    async def look(self) -> RunState:
        """The run as it is, without entering it."""
        ...

    async def enter(self, *, timeout_s: float) -> RunState:
        """Wait until the run is open, remember its incarnation for every later verb, return what was found.

        Raises Unavailable when the deadline passes: the message says what is missing (a trainer to open the run).
        """
        ...

    async def backlog(self) -> dict[str, int]:
        """Undelivered + pending entries of each work stream, exact."""
        ...

    async def books(self) -> Books: ...

    async def beat(self, name: str, facts: Mapping[str, str | int | float]) -> None:
        """Report of one process: its role, pid, progress counter, busy seconds, items, version; stamped with server
        time.
        """
        ...

    async def beats(self) -> dict[str, dict[str, Any]]:
        """Last report of every process, by name, with `age_s` by the server's clock."""
        ...

    async def close(self) -> None: ...

    async def wait_version(self, after: int, *, block_s: float) -> Announcement | None:
        """The live version as soon as it is newer than `after`, or None after `block_s`."""
        ...


class FeederBroker(RunBroker, Protocol):
    async def admit(self, expected: int, cursor_value: str, groups: Sequence[Group]) -> Admission:
        """Compare-and-set of the feeder's cursor: if it is `expected`, the prefix of `groups` that fits below the cap
        enters.

        `cursor_value` (the sources' offsets after all offered groups) is stored only when all of them entered.
        Floor of each = live version, last version = floor + η.
        """
        ...

    async def admit_eval(self, version: int, expected: int, groups: Sequence[Group]) -> Admission:
        """The same for evaluation groups of `version`: floor = last version = `version`, own cap, cursor per
        version.
        """
        ...

    async def evaluations(self) -> list[Evaluation]:
        """All evaluations of the run, by version."""
        ...

    async def missing(self) -> list[str]:
        """Ids that are open but have no entry since a restore: to be admitted again from the source."""
        ...

    async def readmit(self, groups: Sequence[Group]) -> int:
        """Give entries again to those of `groups` that are `missing`, with a new floor; returns how many."""
        ...

    async def exhausted(self, cursor: int) -> None:
        """The source has no more prompts after `cursor`: the last batch may be short."""
        ...


class WorkBroker(RunBroker, Protocol):
    async def enlist(self, slot: str) -> str:
        """A reader name never used before: the slot's name and its start number."""
        ...

    async def inherit(self, stream: str, reader: str, slot: str) -> list[Delivery]:
        """What earlier starts of the same slot still hold, now ours: a slot has one process, so they are dead."""
        ...

    async def read(self, stream: str, reader: str, *, count: int, block_s: float) -> list[Delivery]:
        """Up to `count` new entries for `reader`, waiting at most `block_s` for the first. Like every reading verb it
        leaves out what is no entry of ours, and takes it out of the stream.
        """
        ...

    async def reread(self, stream: str, reader: str) -> list[Delivery]:
        """Everything already pending for `reader` (after a reconnect: replies may have been lost)."""
        ...

    async def adopt(self, stream: str, reader: str, *, idle_s: float, count: int) -> list[Delivery]:
        """Pending entries of other readers that were not renewed for `idle_s`, now ours."""
        ...

    async def renew(self, reader: str, deliveries: Sequence[Delivery]) -> None:
        """Make our pending entries young again; entries that another reader adopted stay theirs."""
        ...

    async def bodies(self, deliveries: Sequence[Delivery]) -> list[Group | None]:
        """The groups of these deliveries, in order; None where the body is gone (another reader settled it) and where
        it cannot be read (then the group is buried with the reason).
        """
        ...

    async def settle(self, reader: str, settlements: Sequence[tuple[Delivery, Outcome]]) -> list[Verdict]:
        """Each settlement is its own transaction, all of them in one round trip."""
        ...

    async def blame(self, reader: str, deliveries: Sequence[Delivery], *, max_attempts: int) -> None:
        """`reader` died holding these (now ours): alone in hand counts as an attempt, together they are marked `alone`.

        Each is released to its stage (or buried, once its attempts reach `max_attempts`).
        """
        ...


class VersionBroker(RunBroker, Protocol):
    async def hold(self, version: int, holder: str, seconds: float) -> Announcement | None:
        """Claim `version` so that its files stay, until the claim expires or is dropped; None if it may be gone."""
        ...

    async def drop_hold(self, version: int, holder: str) -> None: ...
