"""What the server remembers of a run, as plain values; the verbs are in `transitions` and `trainer_transitions`.

For: the record, its streams, and the few moves all verbs are made of. Not for: deciding (transitions), time or sockets
(`memory_broker`). Nothing is changed in place: a move answers with a new record, so a verb that raises changed nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from broker.contract import Announcement, Books, Evaluation, LedgerLine, OpenGroup, RunState
from broker.fields import Fields
from broker.messages import Delivery, Entry, Kind
from broker.streams import WORK_STREAMS

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a verb, and when: what a script gets beside its own arguments."""

    server: str
    """Run id of the server process, new at every start."""
    incarnation: int
    """The opening this process entered; 0 before it entered one."""
    epoch: int = 0
    """What a trainer claimed; 0 for everybody else."""
    now: float = 0.0
    """Server time in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Arithmetic of admission, as given at the opening."""

    cap: int = 0
    groups: int = 0
    staleness: int = 0
    eval_cap: int = 0
    dead_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A pending entry: who reads it, and since when without a sign of progress."""

    entry: Entry
    owner: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A work stream with its one consumer group; undelivered and pending together are its whole length."""

    undelivered: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    pending: Mapping[str, Held] = field(default_factory=dict[str, Held])

    def __len__(self) -> int:
        return len(self.undelivered) + len(self.pending)

    def entry(self, entry_id: str) -> Entry | None:
        if entry_id in self.undelivered:
            return self.undelivered[entry_id]
        held = self.pending.get(entry_id)
        return held and held.entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """One line of `dead`."""

    entry: Entry
    reason: str
    stage: str
    """The stream it was taken from."""
    id: str = field(default="", compare=False)
    forgotten: bool = False
    """The server lost data since: what became of the group meanwhile, nobody here knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run. The empty record is a server that never heard of it (or lost it)."""

    incarnation: int = 0
    epoch: int = 0
    server: str = ""
    """Run id of the server that opened this incarnation."""
    limits: Limits = Limits()
    finished: str = ""
    live: Announcement | None = None
    tick: int = 0
    cursor: int = 0
    cursor_value: str = ""
    exhausted: bool = False
    open: Mapping[str, OpenGroup] = field(default_factory=dict[str, OpenGroup])
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    streams: Mapping[str, Stream] = field(default_factory=lambda: {name: Stream() for name in WORK_STREAMS})
    bodies: Mapping[str, Fields] = field(default_factory=dict[str, Fields])
    dead: tuple[Dead, ...] = ()
    ledger: tuple[LedgerLine, ...] = ()
    versions: Mapping[int, Announcement] = field(default_factory=dict[int, Announcement])
    holds: Mapping[tuple[int, str], float] = field(default_factory=dict[tuple[int, str], float])
    """(version, holder) → expiry in server seconds."""
    evaluations: Mapping[int, Evaluation] = field(default_factory=dict[int, Evaluation])
    starts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each slot's process was started."""
    next_entry: int = 1

    @property
    def live_version(self) -> int:
        return -1 if self.live is None else self.live.version

    @property
    def stopped(self) -> bool:
        """So many groups are buried that nothing new is admitted."""
        return 0 < self.limits.dead_limit <= len(self.dead)

    def room(self, kind: Kind) -> int:
        """Places left in the open set; a resume with a smaller cap may leave less than none."""
        cap = self.limits.cap if kind == "train" else self.limits.eval_cap
        return max(0, cap - sum(group.kind == kind for group in self.open.values()))


MISSING: Final = ""
"""Stream of an open group that has no entry since a restore."""


def entries_added(run: RunRecord, stream: str, entries: Sequence[Entry]) -> RunRecord:
    """`entries` appended to `stream`; each is the live entry of its group from now on."""
    here = run.streams[stream]
    added = {f"{number}-0": entry for number, entry in enumerate(entries, run.next_entry)}
    opened = {entry.group: open_group(stream, entry_id, entry) for entry_id, entry in added.items()}
    return replace(
        run,
        next_entry=run.next_entry + len(entries),
        streams={**run.streams, stream: replace(here, undelivered={**here.undelivered, **added})},
        open={**run.open, **opened},
    )


def open_group(stream: str, entry_id: str, entry: Entry) -> OpenGroup:
    return OpenGroup(
        stream=stream, entry_id=entry_id, kind=entry.kind, floor=entry.floor, last_version=entry.last_version
    )


def entries_removed(run: RunRecord, stream: str, entry_ids: Iterable[str]) -> RunRecord:
    """These entries settled: acknowledged and deleted."""
    here, gone = run.streams[stream], set(entry_ids)
    rest = Stream(undelivered=without(here.undelivered, gone), pending=without(here.pending, gone))
    return replace(run, streams={**run.streams, stream: rest})


def counted(run: RunRecord, counts: Mapping[str, int]) -> RunRecord:
    """Counts added to the books, as one script: the tick rises by one."""
    sums = {**run.counts, **{name: run.counts.get(name, 0) + by for name, by in counts.items()}}
    return replace(run, counts=sums, tick=run.tick + 1)


def without(mapping: Mapping[KeyT, ValueT], keys: Collection[KeyT]) -> Mapping[KeyT, ValueT]:
    """`mapping` less `keys`; itself when it has none of them."""
    gone = {key for key in keys if key in mapping}
    if not gone:
        return mapping
    rest = dict(mapping)
    for key in gone:
        del rest[key]
    return rest


# ---- what may be asked of any run, open or not


def look(run: RunRecord, server: str) -> RunState:
    return RunState(
        exists=bool(run.incarnation or run.epoch),
        incarnation=run.incarnation,
        epoch=run.epoch,
        tick=run.tick,
        same_server=run.server == server,
        live=run.live,
        cap=run.limits.cap,
        eval_cap=run.limits.eval_cap,
        groups=run.limits.groups,
        staleness=run.limits.staleness,
        dead_limit=run.limits.dead_limit,
        finished=run.finished,
    )


def books(run: RunRecord) -> Books:
    return Books(
        tick=run.tick,
        cursor=run.cursor,
        cursor_value=run.cursor_value,
        open=dict(run.open),
        counts=dict(run.counts),
        exhausted=run.exhausted,
    )


def backlog(run: RunRecord) -> dict[str, int]:
    return {name: len(stream) for name, stream in run.streams.items()}


def missing(run: RunRecord) -> list[str]:
    return [group for group, opened in run.open.items() if opened.stream == MISSING]


def live_entries(run: RunRecord, groups: Iterable[str]) -> list[Delivery]:
    """Deliveries of the live entries of these groups, whoever reads them; groups without one are left out."""
    found: list[Delivery] = []
    for group in groups:
        opened = run.open.get(group)
        entry = opened and opened.stream != MISSING and run.streams[opened.stream].entry(opened.entry_id)
        if opened and entry:
            found.append(Delivery(stream=opened.stream, entry_id=opened.entry_id, entry=entry))
    return found
