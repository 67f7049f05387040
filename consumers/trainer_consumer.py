"""The trainer: scored groups in, weight versions out, every group trained once.

For: the loop that collects, trains, publishes, checkpoints, measures and ends the run. Not for: which groups
(`batching`), how (`learners`, `algorithms`), or the order of writes (`publication`), which it calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bound_contextvars

from broker.archive import Archive
from broker.contract import Announcement
from broker.errors import Backpressure, Fenced, Refused, Reset, Unavailable
from broker.messages import Delivery, Group
from broker.outcomes import Outcome, Recycle, Retire, Verdict
from broker.redis_trainer import RedisTrainer
from broker.streams import SCORED
from broker.telemetry import Meter
from consumers.algorithms.base import Algorithm
from consumers.batching import Batch, Done, Wait, choose
from consumers.in_hand import only_live, trainable
from consumers.learners.base import Learner, StepResult
from consumers.measurement import Measurement
from consumers.publication import Publication
from consumers.settings import TrainSection
from consumers.staleness import judge, spread
from consumers.step_inputs import advantages_of, step_seed
from consumers.step_record import StepRecord
from consumers.takeover import Bounds

log = structlog.get_logger()

COME_BACK_S = 600.0
"""How long a trainer waits for a server that went away."""
AGAIN_S = 0.2
FULL_S = 0.5


@dataclass(slots=True)
class Trainer:
    """One process's stay as the run's trainer."""

    broker: RedisTrainer
    learner: Learner
    algorithm: Algorithm
    publication: Publication
    measurement: Measurement
    records: StepRecord
    settings: TrainSection
    bounds: Bounds
    live: Announcement
    run_seed: int
    steps: int
    retake: Callable[[], Awaitable[Announcement]]
    """Take the run over again (the server came back); answers the live version."""
    meter: Meter
    stop: asyncio.Event
    reader: str = "trainer"
    archive: Archive | None = None
    held: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    waiting_since: float = 0.0
    waiting_for: str = ""
    away_s: float = 0.0
    """Of the step's seconds, those in which the server was away or full: they are no work."""

    async def run(self) -> str:
        """consumes: `scored`   produces: weight versions
        waits for: B groups that may be trained next   unblocked by: the reward consumer
        Returns why it ended.
        """
        await self.regain()
        self.meter.loaded()
        while not self.stop.is_set():
            try:
                reason = await self.reached_end()
                if reason:
                    return await self.finish(reason)
                choice = await self.collect()
                if isinstance(choice, Batch):
                    await self.step(choice)
                elif isinstance(choice, Done):
                    return await self.finish(choice.reason)
            except (Reset, Unavailable) as lost:
                await self.come_back(lost)
        if self.live.version:
            with contextlib.suppress(Reset, Unavailable):
                await self.keep_house(leaving=True)
        return "stopped"

    async def regain(self) -> None:
        """Whatever an earlier trainer held is ours now: its epoch is fenced, so nobody else may settle it."""
        adopted = await self.broker.adopt(SCORED, self.reader, idle_s=0, count=1_000_000)
        own = await self.broker.reread(SCORED, self.reader)
        self.held = await only_live(self.broker, [*adopted, *own], (await self.broker.books()).open)

    async def collect(self) -> Batch | Wait | Done:
        """Read what there is room for, put aside what is late, and choose."""
        room = max(self.bounds.cap, self.settings.groups) - len(self.held)
        enough = len(self.held) >= self.settings.groups and not self.waiting_for
        fresh: list[Delivery] = []
        if room > 0:
            fresh = await self.broker.read(SCORED, self.reader, count=room, block_s=0 if enough else 0.25)
        for one in fresh:
            self.meter.taken_up(one, time.time())
        books = await self.broker.books()
        self.held = await only_live(self.broker, [*self.held.values(), *fresh], books.open)
        await self.put_aside_late({group: line.last_version for group, line in books.open.items()})
        choice = choose(
            list(self.held.values()),
            books.open,
            version=self.live.version,
            groups=self.settings.groups,
            exhausted=books.exhausted,
            bounded=self.settings.late != "keep",
        )
        self.waiting_for = choice.reason if isinstance(choice, Wait) else ""
        self.meter.stage = f"waiting: {self.waiting_for}" if self.waiting_for else "training"
        return choice

    async def put_aside_late(self, last_versions: dict[str, int]) -> None:
        late: list[tuple[Delivery, Recycle | Retire]] = []
        for one in self.held.values():
            last = last_versions[one.entry.group]
            fate = judge(one.entry, self.live.version, last, self.settings.staleness, self.settings.late)
            if fate is not None:
                late.append((one, fate))
        if late:
            await self.keep_retired([(one, fate) for one, fate in late if isinstance(fate, Retire)])
            verdicts = await self.broker.settle(self.reader, list(late))
            self.withdraw_undone(late, verdicts)
            log.warning(
                "groups came too late", fate=type(late[0][1]).__name__, groups=len(late), reason=late[0][1].reason
            )
            for one, _ in late:
                del self.held[one.entry.group]

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

    def keep_trained(self, deliveries: Sequence[Delivery], groups: Sequence[Group]) -> None:
        """The batch, before its commit deletes the bodies, with the advantages that the learner was given."""
        if self.archive:
            version = self.live.version + 1
            for group, one, advantages in zip(groups, deliveries, advantages_of(self.algorithm, groups), strict=True):
                self.archive.append(group, one, fate="trained", version=version, advantages=advantages)

    async def step(self, batch: Batch) -> None:
        """Train the batch, publish the version, forget the groups."""
        waited = time.monotonic() - self.waiting_since if self.waiting_since else 0.0
        started = time.monotonic()
        groups = await trainable(self.broker, batch.deliveries)
        if len(groups) < len(batch.deliveries):  # it was chosen whole; the next choice is made without what was buried
            return
        self.publication.remember(groups)
        seed = step_seed(self.run_seed, self.live.version)
        self.meter.held, self.away_s = len(groups), 0.0
        with self.meter.working(len(groups)) as share, bound_contextvars(version=self.live.version + 1):
            result = await asyncio.to_thread(self.train, groups, self.live.version, seed)
            trained = time.monotonic()
            await self.publish(batch.deliveries, groups, seed)
            published = time.monotonic()
            times = {"wait_s": waited, "train_s": trained - started, "publish_s": published - trained}
            self.account(batch.deliveries, groups, result, times)
            await self.keep_house()
        self.meter.finished(len(groups), share.seconds - self.away_s)
        self.meter.held = 0
        self.waiting_since = time.monotonic()

    def train(self, groups: Sequence[Group], version: int, seed: int) -> StepResult:
        """The step from `version`; also what replay runs."""
        return self.learner.step(groups, advantages_of(self.algorithm, groups), version=version, seed=seed)

    async def publish(self, deliveries: Sequence[Delivery], groups: Sequence[Group], seed: int) -> None:
        """Until it is committed or refused: a server that went away is waited for, and taken over again."""
        self.keep_trained(deliveries, groups)
        try:
            await self.committed(deliveries, groups, seed)
        except (Fenced, Refused):
            if self.archive:
                for group in groups:
                    self.archive.withdraw(group.id)
            raise
        for one in deliveries:
            self.held.pop(one.entry.group, None)
        self.meter.version = self.live.version

    async def committed(self, deliveries: Sequence[Delivery], groups: Sequence[Group], seed: int) -> None:
        """Returns once the version is live. Raises Fenced, Refused."""
        evaluate = self.measurement.wanted_at(self.live.version + 1)
        while True:
            try:
                manifest = await self.publication.publish(
                    self.live, deliveries, groups, seed=seed, evaluate=evaluate, hold_s=self.measurement.hold_s
                )
            except Backpressure as full:
                log.warning("waiting to publish", reason=str(full))
                await asyncio.sleep(FULL_S)
                self.away_s += FULL_S
            except (Reset, Unavailable) as lost:
                before = self.live
                await self.come_back(lost)
                if self.live.version == before.version + 1:
                    return
            else:
                self.live = manifest.announcement
                return

    async def come_back(self, lost: Exception) -> None:
        """Take the run over again; only a run that stands where this learner stands can be gone on with."""
        log.warning("the server went away; taking the run over again", reason=str(lost))
        before, went = self.live, time.monotonic()
        await self.retaken()
        self.away_s += time.monotonic() - went
        same = (self.live.version, self.live.epoch) == (before.version, before.epoch)
        if not same and self.live.version != before.version + 1:
            raise Refused(
                f"the run came back at version {self.live.version}, this trainer stands at {before.version}; "
                "it restarts from the newest checkpoint"
            )

    async def retaken(self) -> None:
        """consumes: -   produces: a run that is ours again   waits for: an answering server   unblocked by: its start

        A learner in memory is worth the wait. Raises the last error after `COME_BACK_S`, or when told to stop.
        """
        deadline = time.monotonic() + COME_BACK_S
        while True:
            try:
                self.live = await self.retake()
                return await self.regain()
            except (Reset, Unavailable):
                if self.stop.is_set() or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(AGAIN_S)

    def account(
        self,
        deliveries: Sequence[Delivery],
        groups: Sequence[Group],
        result: StepResult,
        times: Mapping[str, float],
    ) -> None:
        staleness = spread([one.entry.oldest_version for one in deliveries], self.live.version - 1)
        self.meter.progress += 1
        self.meter.tokens += sum(group.tokens for group in groups)
        self.records.step(self.live.version, groups, staleness, result, **times)
        log.info("trained", version=self.live.version, reward=self.records.last_reward, staleness=staleness.largest)

    async def keep_house(self, *, leaving: bool = False) -> None:
        """Checkpoint when due, and when leaving, so that whoever trains next replays nothing; then delete what neither
        it nor anybody needs.
        """
        if leaving or self.live.version % self.settings.checkpoint_every == 0:
            self.meter.stage = "saving a checkpoint"
            await asyncio.to_thread(self.publication.checkpoint, self.live)
        if leaving or self.live.version % min(10, self.settings.checkpoint_every) == 0:
            await self.publication.prune(self.live)

    async def reached_end(self) -> str:
        """Why the run is over, or nothing."""
        goal = await self.measurement.look(self.broker)
        if goal:
            return goal
        return f"trained {self.live.version} versions" if self.live.version >= self.steps else ""

    async def finish(self, reason: str) -> str:
        """Measure the last version, then tell everybody."""
        self.meter.stage = "measuring the last version"
        await self.measurement.last(self.broker, self.live.version, self.stop)
        await self.broker.finish(reason)
        self.meter.stage = f"finished: {reason}"
        log.info("finished", reason=reason, version=self.live.version)
        return reason
