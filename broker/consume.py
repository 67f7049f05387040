"""The one consuming loop: read, work, settle, renew, drain. Every role that reads `prompts` or `rollouts` runs it.

For: turning deliveries into outcomes through a handler that never sees the broker. Not for: the trainer, which holds
many deliveries and commits them together (`consumers.trainer_consumer`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bind_contextvars

from broker.answers import Answer, gathered
from broker.archive import Archive
from broker.cancellation import end, together
from broker.contract import WorkBroker
from broker.entering import entered
from broker.entries import blamed
from broker.errors import Backpressure, Reset, Unavailable
from broker.handling import Handler, answer
from broker.measures import ADOPTED, HANDLING, LEASES_LOST, SETTLED, SETTLING
from broker.messages import Delivery, Group
from broker.outcomes import Bury, Outcome, Release, Retire, fate_of
from broker.settings import BrokerSection
from broker.telemetry import Meter

log = structlog.get_logger()

HOLDING_S = 0.25
"""Longest read with work in hand: until it ends nobody sees that this loop shall drain, or may not read for a while."""
SETTLING_S = 5.0
"""Longest an outcome that is being settled is waited for at a drain's deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the loop reads and gives up."""

    capacity: int
    """Deliveries in hand at once."""
    block_s: float = 1.0
    lease_s: float = 10.0
    max_attempts: int = 3
    drain_s: float = 20.0
    enter_s: float = 600.0
    """How long to wait for a trainer to open the run."""

    @classmethod
    def of(cls, settings: BrokerSection, capacity: int) -> Rules:
        """Those of a run file."""
        return cls(
            capacity=capacity,
            block_s=settings.block_s,
            lease_s=settings.lease_s,
            max_attempts=settings.max_attempts,
            drain_s=settings.drain_s,
        )


@dataclass(slots=True)
class Consuming:
    """One stay in the run, from entering it until it is drained, reset or over."""

    broker: WorkBroker
    stream: str
    slot: str
    handle: Handler
    rules: Rules
    meter: Meter
    stop: asyncio.Event
    archive: Archive | None = None
    progress: Callable[[], float] | None = None
    """Rises while the work in hand advances; leases are renewed only then. Default: the meter's own count."""
    may_read: Callable[[], bool] = lambda: True
    reader: str = ""
    held: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    deliveries: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue[Answer])
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    asked_at: float = float("-inf")
    """When it was last asked whether the run is over, monotonic seconds."""

    async def run(self) -> None:
        """One stay. Raises Reset and Unavailable when the run must be entered again, Broken and Misconfigured when the
        process must stop.
        """
        self.meter.shares.places = float(self.rules.capacity)
        self.reader = self.reader or await self.broker.enlist(self.slot)
        await self.blame_the_dead(await self.broker.inherit(self.stream, self.reader, self.slot))
        try:
            await together(self.reading(), self.settling(), self.renewing())
        finally:
            await end(self.held.values())
            self.meter.held = 0

    async def reading(self) -> None:
        """consumes: `stream`   produces: whatever the handler forwards
        waits for: an entry and a free place   unblocked by: a writer, a finished handler, a reader that died
        on stop: takes no more, finishes what it holds, gives the rest back by the deadline
        """
        await self.start(await self.broker.reread(self.stream, self.reader))
        while not await self.is_over():
            room = self.room()
            if room:
                block_s = min(self.rules.block_s, HOLDING_S) if self.held else self.rules.block_s
                await self.start(await self.broker.read(self.stream, self.reader, count=room, block_s=block_s))
            else:
                await self.a_place()
        await self.drain()

    def room(self) -> int:
        return self.rules.capacity - len(self.held) if self.may_read() else 0

    async def a_place(self) -> None:
        """Wait until a handler has finished, at most one blocking read long; with empty hands a moment: what keeps it
        from reading ends unheard.
        """
        self.freed.clear()
        try:
            await asyncio.wait_for(self.freed.wait(), self.rules.block_s if self.held else 0.1)
        except TimeoutError:
            return

    async def is_over(self) -> bool:
        """Told to stop, or the run is finished. That is asked with empty hands only, and once in a blocking read's
        time: a reader that is fed one group at a time would otherwise ask as often as it reads.
        """
        if self.stop.is_set():
            return True
        if self.held or time.monotonic() - self.asked_at < self.rules.block_s:
            return False
        self.asked_at = time.monotonic()
        return bool((await self.broker.look()).finished)

    async def start(self, deliveries: Sequence[Delivery]) -> None:
        """Begin work on these; one that was in hand at a death is worked on with nothing else in hand."""
        fresh = [delivery for delivery in deliveries if delivery.entry_id not in self.held]
        bodies = await self.broker.bodies(fresh) if fresh else []
        for delivery, group in zip(fresh, bodies, strict=True):
            if group is None:
                continue
            if delivery.entry.alone:
                await self.nothing_held()
            self.deliveries[delivery.entry_id] = delivery
            self.held[delivery.entry_id] = asyncio.create_task(self.work(delivery, group))
            self.meter.held = len(self.held)
            if delivery.entry.alone:
                await self.nothing_held()

    async def nothing_held(self) -> None:
        while self.held:
            await self.a_place()

    async def work(self, delivery: Delivery, group: Group) -> None:
        """In a task, and so a context, of its own: what is bound here is bound for this group alone."""
        bind_contextvars(group=group.id)
        self.meter.taken_up(delivery, time.time())
        began = time.monotonic()
        with self.meter.working() as share:
            try:
                outcome = await answer(self.handle, delivery, group, self.rules.max_attempts)
                self.keep(delivery, group, outcome)
            except Exception as error:  # noqa: BLE001  `settling` raises it; unheard it would hold its place for ever
                outcome = error
        lasted_s = time.monotonic() - began
        self.meter.metrics.observe(HANDLING, lasted_s)
        await self.answers.put(Answer(delivery, outcome, share.seconds, lasted_s))

    def keep(self, delivery: Delivery, group: Group, outcome: Outcome) -> None:
        """What ends here is archived before its body is deleted."""
        if self.archive and isinstance(outcome, Retire):
            self.archive.append(outcome.group or group, delivery, fate="retired", reason=outcome.reason)
        elif self.archive and isinstance(outcome, Bury):
            self.archive.append(group, delivery, fate="buried", reason=outcome.reason)

    async def settling(self) -> None:
        """consumes: outcomes   produces: settled entries   waits for: a handler   unblocked by: its answer"""
        while True:
            answers = await gathered(self.answers, lambda: len(self.held))
            batch: list[tuple[Delivery, Outcome]] = []
            for delivery, outcome, _, _ in answers:
                if isinstance(outcome, Exception):
                    raise outcome
                batch.append((delivery, outcome))
            await self.settle(batch)
            took = [one.share_s for one in answers if not isinstance(one.outcome, Release)]
            self.meter.finished(len(took), sum(took))
            for delivery, _ in batch:
                self.held.pop(delivery.entry_id, None)
                self.deliveries.pop(delivery.entry_id, None)
            self.meter.held = len(self.held)
            self.meter.progress += len(batch)
            self.freed.set()

    async def settle(self, batch: Sequence[tuple[Delivery, Outcome]]) -> None:
        while True:
            began = time.monotonic()
            try:
                verdicts = await self.broker.settle(self.reader, batch)
            except Backpressure as full:
                log.warning("waiting", reason=str(full), groups=len(batch))
                await asyncio.sleep(0.5)
                continue
            self.meter.metrics.observe(SETTLING, time.monotonic() - began)
            for (delivery, outcome), verdict in zip(batch, verdicts, strict=True):
                if verdict == "done":
                    self.meter.metrics.count(SETTLED, outcome=fate_of(outcome))
                else:
                    self.meter.metrics.count(LEASES_LOST)
                    told = {"verdict": verdict, "outcome": type(outcome).__name__}
                    log.info("another reader was first", group=delivery.entry.group, **told)
                    if self.archive and isinstance(outcome, Retire | Bury):
                        self.archive.withdraw(delivery.entry.group)
            return

    async def renewing(self) -> None:
        """consumes: leases   produces: young ones   waits for: a third of the lease   unblocked by: time, if work
        advances
        """
        seen, beats = -1.0, 0
        while True:
            await asyncio.sleep(self.rules.lease_s / 3)
            now = self.progress() if self.progress else float(self.meter.progress)
            if self.deliveries and now != seen:
                await self.broker.renew(self.reader, list(self.deliveries.values()))
            seen, beats = now, beats + 1
            if beats % 3 == 0:
                room = self.rules.capacity - len(self.held)
                if room > 0:
                    idle = 3 * self.rules.lease_s
                    await self.blame_the_dead(
                        await self.broker.adopt(self.stream, self.reader, idle_s=idle, count=room)
                    )

    async def blame_the_dead(self, adopted: Sequence[Delivery]) -> None:
        """What a dead reader held goes back to the stream: alone it counts as an attempt, else each is tried alone."""
        lost = [delivery for delivery in adopted if delivery.entry_id not in self.held]
        if lost:
            log.warning(
                "adopted from a dead reader", groups=[delivery.entry.group for delivery in lost][:8], count=len(lost)
            )
            self.meter.metrics.count(ADOPTED, len(lost))
            await self.keep_doomed(lost)
            await self.broker.blame(self.reader, lost, max_attempts=self.rules.max_attempts)

    async def keep_doomed(self, lost: Sequence[Delivery]) -> None:
        """A group that will be buried because its readers died with it is archived like any other."""
        fate = blamed(lost[0].entry, len(lost) == 1, self.rules.max_attempts)
        if self.archive and isinstance(fate, Bury):
            [group] = await self.broker.bodies(lost)
            if group is not None:
                self.archive.append(group, lost[0], fate="buried", reason=fate.reason)

    async def drain(self) -> None:
        """Finish what is in hand by the deadline; what is left then is released, not lost."""
        deadline = time.monotonic() + self.rules.drain_s
        while self.held and time.monotonic() < deadline:
            await self.a_place()
        await end(self.held.values())
        deadline = time.monotonic() + SETTLING_S
        while any(map(has_answered, self.held.values())) and time.monotonic() < deadline:
            await self.a_place()  # settling has them in its hands: released as well they would be settled twice
        if self.held:
            await self.settle([(self.deliveries[entry_id], Release(reason="drained")) for entry_id in self.held])
        self.held.clear()


def has_answered(task: asyncio.Task[None]) -> bool:
    """Whether the work came to an outcome."""
    return task.done() and not task.cancelled() and task.exception() is None


async def consume(
    stay: Callable[[], Awaitable[None]], broker: WorkBroker, stop: asyncio.Event, enter_s: float = 600.0
) -> None:
    """Stay in the run until stopped or it is over, entering it anew whenever the server went, lost or re-opened it.

    `stay` is one stay, begun with empty hands each time.

    consumes: a run   produces: stays in it   waits for: an open run   unblocked by: a trainer that opens it
    """
    while not stop.is_set():
        state = await entered(broker, stop, enter_s)
        if state is None or state.finished:
            return
        try:
            await stay()
        except (Reset, Unavailable) as lost:
            log.warning("entering the run again", reason=str(lost))
        else:
            return
