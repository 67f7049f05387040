"""The trainer: scored groups in, weight versions out, every group trained once.

For: the loop that trains, publishes beside the next step, checkpoints, measures and ends the run. Not for: which groups
(`hand`, `batching`), how (`learners`, `algorithms`), or the order of writes (`publication`), which it calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bound_contextvars

from broker.contract import Announcement
from broker.errors import Backpressure, Fenced, Refused, Reset, Unavailable
from broker.messages import Group
from broker.redis_trainer import RedisTrainer
from broker.telemetry import Meter
from broker.weights import packed_batch
from consumers.algorithms.base import Algorithm
from consumers.batching import Batch, Done
from consumers.hand import Hand
from consumers.in_hand import trainable
from consumers.learners.base import Learner, StepResult
from consumers.measurement import Measurement
from consumers.publication import Draft, Publication
from consumers.settings import TrainSection
from consumers.staleness import spread
from consumers.step import Step
from consumers.step_inputs import advantages_of, step_seed
from consumers.step_record import StepRecord

log = structlog.get_logger()

COME_BACK_S = 600.0
"""How long a trainer waits for a server that went away."""
AGAIN_S = 0.2
FULL_S = 0.5
LOOK_S, LOOK = 0.02, 0.1
"""Between two looks for the next batch while one is trained: seconds, and share of a step; a look costs the learner."""


@dataclass(slots=True)
class Trainer:
    """One process's stay as the run's trainer."""

    broker: RedisTrainer
    learner: Learner
    algorithm: Algorithm
    hand: Hand
    publication: Publication
    measurement: Measurement
    records: StepRecord
    settings: TrainSection
    live: Announcement
    run_seed: int
    steps: int
    retake: Callable[[], Awaitable[Announcement]]
    """Take the run over again (the server came back); answers the live version."""
    meter: Meter
    stop: asyncio.Event
    ending: str = ""
    """Why the run is over, once it is."""
    idle_since: float = 0.0
    last_step_s: float = 0.0
    published_at: float = 0.0
    away_s: float = 0.0
    """Seconds in which the server was away or full while a version was published: they are no work."""
    learner_at: int = field(init=False)
    """Version that the learner's weights are, or become by the step it is in: ahead of the run by what is not published
    yet."""

    def __post_init__(self) -> None:
        self.learner_at = self.live.version

    async def run(self) -> str:
        """consumes: `scored`   produces: weight versions
        waits for: B groups that may be trained next   unblocked by: the reward consumer
        Returns why it ended.
        """
        await self.hand.regain()
        self.meter.loaded()
        while not self.stop.is_set():
            try:
                reason = await self.reached_end()
                if reason:
                    return await self.finish(reason)
                choice = await self.hand.collect(self.live.version)
                if isinstance(choice, Batch):
                    await self.steps_from(choice)
                elif isinstance(choice, Done):
                    return await self.finish(choice.reason)
            except (Reset, Unavailable) as lost:
                if self.learner_at > self.live.version:  # what it has learnt can be published by nobody any more
                    raise
                await self.come_back(lost)
        if self.live.version:
            with contextlib.suppress(Reset, Unavailable):
                await self.keep_house(leaving=True)
        return "stopped"

    async def steps_from(self, batch: Batch) -> None:
        """consumes: a batch, and each that is there before the step before it ends   produces: a version of each
        waits for: the learner, and the publishing of the step before   unblocked by: both

        A version is published while the next step is trained. All is published when it returns, and whenever a
        checkpoint is due, for then the learner must stand where the run does.
        """
        step, trained = await self.step_of(batch, self.live.version), None
        while step is not None:
            training = asyncio.create_task(self.train_step(step))
            try:
                if trained is not None:
                    await self.publish(trained)
                following = await self.following(step, training)
                await training
            finally:
                training.cancel()
            step, trained = (None if self.stop.is_set() else following), step
            if step is None or self.checkpoint_due(trained.version):
                await self.publish(trained)
                trained = None

    async def step_of(self, batch: Batch, version: int) -> Step | None:
        """The step from `version`; None when a group cannot be trained on: the next choice is made without it."""
        groups = await trainable(self.broker, batch.deliveries)
        if len(groups) < len(batch.deliveries):
            return None
        seed = step_seed(self.run_seed, version)
        return Step(version=version + 1, deliveries=batch.deliveries, groups=groups, seed=seed)

    async def following(self, step: Step, training: asyncio.Task[None]) -> Step | None:
        """consumes: `scored`   produces: the step after `step`; None: nothing is there yet, or the run may be over
        waits for: a batch   unblocked by: the reward consumer, or the end of `training`
        """
        try:
            while not training.done() and not self.stop.is_set():
                if step.version >= self.steps or await self.reached_end():
                    return None
                batch = await self.hand.ahead(step.version, step.names)
                if batch is not None:
                    return await self.step_of(batch, step.version)
                await asyncio.wait([training], timeout=max(LOOK_S, LOOK * self.last_step_s))
        except (Reset, Unavailable) as lost:
            await self.come_back(lost)
        return None

    async def train_step(self, step: Step) -> None:
        """Leaves the learner's answer and the version's tensors in `step`."""
        started = time.monotonic()
        if self.idle_since:
            step.publish_s = max(0.0, self.published_at - self.idle_since)
            step.wait_s = started - self.idle_since - step.publish_s
        self.learner_at, self.meter.stage = step.version, "training"
        self.meter.held += len(step.groups)
        self.publication.remember(step.groups)
        with self.meter.working(len(step.groups)) as share, bound_contextvars(version=step.version):
            packing, training = asyncio.to_thread(packed_batch, step.groups), asyncio.to_thread(self.trained, step)
            step.packed, step.trained = await asyncio.gather(packing, training)
        self.idle_since = time.monotonic()
        step.train_s, step.work_s = self.idle_since - started, share.seconds
        self.last_step_s = step.train_s

    def trained(self, step: Step) -> tuple[StepResult, Draft]:
        return self.train(step.groups, step.version - 1, step.seed), self.publication.draft()

    def train(self, groups: Sequence[Group], version: int, seed: int) -> StepResult:
        """The step from `version`; also what replay runs."""
        return self.learner.step(groups, advantages_of(self.algorithm, groups), version=version, seed=seed)

    async def publish(self, step: Step) -> None:
        """Until it is committed or refused: a server that went away is waited for, and taken over again. Then the
        groups are forgotten.
        """
        self.away_s = 0.0
        with self.meter.working(len(step.groups)) as share, bound_contextvars(version=step.version):
            self.keep_trained(step)
            try:
                await self.committed(step)
            except (Fenced, Refused):
                if self.hand.archive:
                    for group in step.groups:
                        self.hand.archive.withdraw(group.id)
                raise
            self.hand.drop(step.deliveries)
            self.meter.version = self.live.version
            self.account(step)
            try:
                await self.keep_house()
            except (Reset, Unavailable) as lost:
                await self.come_back(lost)
        self.published_at = time.monotonic()
        self.meter.finished(len(step.groups), max(0.0, step.work_s + share.seconds - self.away_s))
        self.meter.held -= len(step.groups)

    def keep_trained(self, step: Step) -> None:
        """The batch, before its commit deletes the bodies, with the advantages that the learner was given."""
        if self.hand.archive:
            credit = advantages_of(self.algorithm, step.groups)
            self.hand.archive.append_trained(step.groups, step.packed, step.deliveries, credit, version=step.version)

    async def committed(self, step: Step) -> None:
        """Returns once the version is live. Raises Fenced, Refused."""
        assert step.trained is not None
        evaluate, draft = self.measurement.wanted_at(step.version), step.trained[1]
        while True:
            try:
                manifest = await self.publication.publish(
                    self.live,
                    step.deliveries,
                    step.groups,
                    seed=step.seed,
                    draft=draft,
                    packed=step.packed,
                    evaluate=evaluate,
                    hold_s=self.measurement.hold_s,
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
        if not same and not before.version + 1 == self.live.version <= self.learner_at:
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
                return await self.hand.regain()
            except (Reset, Unavailable):
                if self.stop.is_set() or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(AGAIN_S)

    def account(self, step: Step) -> None:
        assert step.trained is not None
        staleness = spread([one.entry.oldest_version for one in step.deliveries], step.version - 1)
        self.meter.progress += 1
        self.meter.tokens += sum(group.tokens for group in step.groups)
        times = {"wait_s": step.wait_s, "train_s": step.train_s, "publish_s": step.publish_s}
        self.records.step(step.version, step.groups, staleness, step.trained[0], **times)
        log.info("trained", version=step.version, reward=self.records.last_reward, staleness=staleness.largest)

    async def keep_house(self, *, leaving: bool = False) -> None:
        """Checkpoint when due, and when leaving, so that whoever trains next replays nothing; then delete what neither
        it nor anybody needs.
        """
        if leaving or self.checkpoint_due(self.live.version):
            self.meter.stage = "saving a checkpoint"
            await asyncio.to_thread(self.publication.checkpoint, self.live)
        if leaving or self.live.version % min(10, self.settings.checkpoint_every) == 0:
            await self.publication.prune(self.live)

    def checkpoint_due(self, version: int) -> bool:
        return version % self.settings.checkpoint_every == 0

    async def reached_end(self) -> str:
        """Why the run is over, or nothing."""
        goal = await self.measurement.look(self.broker)
        done = f"trained {self.live.version} versions" if self.live.version >= self.steps else ""
        self.ending = self.ending or goal or done
        return self.ending

    async def finish(self, reason: str) -> str:
        """Measure the last version, then tell everybody."""
        self.meter.stage = "measuring the last version"
        await self.measurement.last(self.broker, self.live.version, self.stop)
        await self.broker.finish(reason)
        self.meter.stage = f"finished: {reason}"
        log.info("finished", reason=reason, version=self.live.version)
        return reason
