"""What a trainer has in hand: scored groups that were read and not settled yet, and which of them come next.

For: reading, putting aside what is late, choosing. Not for: the rules (`batching`, `staleness`), training, or settling
what was trained (`publication`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from broker.archive import Archive
from broker.contract import Books, OpenGroup
from broker.messages import Delivery
from broker.outcomes import Outcome, Recycle, Retire, Verdict
from broker.redis_trainer import RedisTrainer
from broker.streams import SCORED
from broker.telemetry import Meter
from consumers.batching import Batch, Done, Wait, choose
from consumers.in_hand import only_live
from consumers.settings import TrainSection
from consumers.staleness import judge

log = structlog.get_logger()

READ_S = 0.25
"""How long a read waits for something to come."""


@dataclass(slots=True)
class Hand:
    """One trainer's deliveries."""

    broker: RedisTrainer
    settings: TrainSection
    cap: int
    """Groups that may be open in the run."""
    meter: Meter
    archive: Archive | None = None
    reader: str = "trainer"
    held: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    unproven: list[Delivery] = field(default_factory=list[Delivery])
    """Read, and not held against the open set yet: a stranger's entry may bear the name of a group that is held."""
    waiting_for: str = ""
    looked_ahead_from: int = -1
    """Version for whose step `ahead` asked last."""

    async def regain(self) -> None:
        """Whatever an earlier trainer held is ours now: its epoch is fenced, so nobody else may settle it."""
        adopted = await self.broker.adopt(SCORED, self.reader, idle_s=0, count=1_000_000)
        own = await self.broker.reread(SCORED, self.reader)
        self.held, self.unproven = {}, [*adopted, *own]
        await self.current_books()

    async def collect(self, version: int) -> Batch | Wait | Done:
        """Read what there is room for, put aside what is late for the step from `version`, and choose."""
        enough = self.count >= self.settings.groups and not self.waiting_for
        await self.read(block_s=0 if enough else READ_S)
        books = await self.current_books()
        await self.put_aside_late(version, {group: line.last_version for group, line in books.open.items()})
        choice = self.choice(version, books.open, exhausted=books.exhausted)
        self.waiting_for = choice.reason if isinstance(choice, Wait) else ""
        self.meter.stage = f"waiting: {self.waiting_for}" if self.waiting_for else "training"
        return choice

    async def ahead(self, version: int, training: Collection[str]) -> Batch | None:
        """The batch for the step from `version` while `training`, the step to it, is still under way; None while there
        is none. It waits for nothing and puts nothing aside: what is late is dealt with once the version is live.
        """
        await self.read(block_s=0)
        seen = version == self.looked_ahead_from and not self.unproven
        if seen or self.count < self.settings.groups + len(training):  # the answer is known without the question
            return None
        self.looked_ahead_from = version
        books = await self.current_books()
        left = {group: line for group, line in books.open.items() if group not in training}
        mine = [one for group, one in self.held.items() if group in left]
        if any(self.fate(one, version, left[one.entry.group].last_version) for one in mine):
            return None
        choice = self.choice(version, left, exhausted=books.exhausted)
        return choice if isinstance(choice, Batch) else None

    async def read(self, *, block_s: float) -> None:
        room = max(self.cap, self.settings.groups) - self.count
        if room <= 0:
            return
        for one in await self.broker.read(SCORED, self.reader, count=room, block_s=block_s):
            self.meter.taken_up(one, time.time())
            self.unproven.append(one)

    @property
    def count(self) -> int:
        return len(self.held) + len(self.unproven)

    async def current_books(self) -> Books:
        """The books, and only that in hand which they name."""
        books = await self.broker.books()
        self.held = await only_live(self.broker, [*self.held.values(), *self.unproven], books.open)
        self.unproven = []
        return books

    def choice(self, version: int, opened: Mapping[str, OpenGroup], *, exhausted: bool) -> Batch | Wait | Done:
        return choose(
            list(self.held.values()),
            opened,
            version=version,
            groups=self.settings.groups,
            exhausted=exhausted,
            bounded=self.settings.late != "keep",
        )

    def fate(self, one: Delivery, version: int, last: int) -> Recycle | Retire | None:
        return judge(one.entry, version, last, self.settings.staleness, self.settings.late)

    async def put_aside_late(self, version: int, last_versions: Mapping[str, int]) -> None:
        fates = [(one, self.fate(one, version, last_versions[one.entry.group])) for one in self.held.values()]
        late = [(one, fate) for one, fate in fates if fate is not None]
        if late:
            await self.keep_retired([(one, fate) for one, fate in late if isinstance(fate, Retire)])
            verdicts = await self.broker.settle(self.reader, list(late))
            self.withdraw_undone(late, verdicts)
            log.warning(
                "groups came too late", fate=type(late[0][1]).__name__, groups=len(late), reason=late[0][1].reason
            )
            self.drop([one for one, _ in late])

    async def keep_retired(self, late: Sequence[tuple[Delivery, Retire]]) -> None:
        """What ends here untrained is archived like what trains, before its body is deleted."""
        if self.archive and late:
            bodies = await self.broker.bodies([one for one, _ in late])
            for body, (one, fate) in zip(bodies, late, strict=True):
                if body is not None:
                    self.archive.append(body, one, fate="retired", reason=fate.reason)

    def withdraw_undone(self, late: Sequence[tuple[Delivery, Outcome]], verdicts: Sequence[Verdict]) -> None:
        for (one, fate), verdict in zip(late, verdicts, strict=True):
            if self.archive and isinstance(fate, Retire) and verdict != "done":
                self.archive.withdraw(one.entry.group)

    def drop(self, settled: Sequence[Delivery]) -> None:
        for one in settled:
            self.held.pop(one.entry.group, None)
