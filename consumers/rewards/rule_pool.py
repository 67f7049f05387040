"""Rules in worker processes with hard deadlines: a rule that hangs or dies costs its own group and nothing else.

For: sharing groups out to processes. Not for: one process (`rule_process`), the rules, or weights (`weighted`).

Quick rules get many groups in one message, slow ones a single group, so that no group waits long behind another. When a
process is lost, the group it was at fails, and the others of its chunk are scored again by the next process: rules
have no effects, so that is allowed. Nothing of this is ever scored as 0.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog
from numpy.typing import NDArray

from broker.errors import Poison, Transient
from broker.messages import Group
from consumers.rewards.rule_process import Lost, RuleProcess
from consumers.rewards.rule_worker import Answer, Part, Question

log = structlog.get_logger()

Parts = dict[str, NDArray[np.float32]]
"""(G,) per part."""

CHUNK_S = 0.02
"""Work in one message, by the pace so far."""

LARGEST_CHUNK = 64


class RuleFailed(Exception):
    """A rule raised, or answered something that is no finite number."""


@dataclass(slots=True)
class Job:
    """A group that waits for its scores."""

    group: str
    question: Question
    answer: asyncio.Future[Answer]

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def finish(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


@dataclass(slots=True)
class Place:
    """One process of the pool; None until it is needed, and after it was lost."""

    process: RuleProcess | None = None
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    pace_s: float = CHUNK_S
    """Seconds a group takes, the last ones counting most."""

    async def ready(self, parts: Sequence[Part]) -> RuleProcess:
        """Raises Misconfigured when a rule cannot be made, Transient when the process does not start."""
        async with self.starting:
            self.process = self.process or await RuleProcess.spawn(parts)
            return self.process

    def chunk_size(self) -> int:
        return max(1, min(LARGEST_CHUNK, int(CHUNK_S / max(self.pace_s, 1e-6))))


@dataclass(slots=True)
class RulePool:
    """See `weighted.Scorer`."""

    parts: Sequence[Part]
    processes: int
    timeout_s: float
    """For one group, all parts and siblings together."""
    capacity: int
    """Groups that may wait here."""
    beats: int = 0
    """Groups scored."""
    waiting: deque[Job] = field(default_factory=deque[Job])
    added: asyncio.Event = field(default_factory=asyncio.Event)
    places: list[Place] = field(default_factory=list[Place])
    servers: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])

    async def start(self) -> None:
        """One process now, the others when there is work for them. Raises what `Place.ready` raises."""
        if not self.servers:
            self.places = [Place() for _ in range(self.processes)]
            self.servers = [asyncio.create_task(self.serve(place)) for place in self.places]
        await self.places[0].ready(self.parts)

    async def score(self, group: Group) -> Parts:
        """Raises Transient when the process was lost, RuleFailed when a rule failed, Misconfigured when none can
        start."""
        if group.rollouts is None:
            raise Poison(f"group {group.id} has no rollouts to score; it is buried; score what rollout producers send")
        if not self.servers:
            await self.start()
        prompt = group.prompt
        question = Question(prompt.text, prompt.answer, prompt.meta, group.rollouts.texts)
        job = Job(group.id, question, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self.added.set()
        answer = await job.answer
        if isinstance(answer, str):
            raise RuleFailed(
                f"{answer}, on group {group.id}; it is tried again, then buried; mend the rule or the data"
            )
        return {part.name: np.array(rewards, np.float32) for part, rewards in zip(self.parts, answer, strict=True)}

    async def serve(self, place: Place) -> None:
        """consumes: waiting groups   produces: their scores
        waits for: a group, a process's answer   unblocked by: `score`, the deadline
        """
        while True:
            chunk = await self.next_chunk(place)
            try:
                await self.answered(place, chunk)
            except asyncio.CancelledError:
                self.put_back(chunk)
                raise
            except Exception as error:  # noqa: BLE001 - it is raised where the group's score is awaited
                for job in chunk:
                    job.fail(error)

    async def next_chunk(self, place: Place) -> list[Job]:
        """At least one group, in order of arrival; as many as are quick, and no more than the place's share."""
        while not self.waiting:
            self.added.clear()
            await self.added.wait()
        share = -(-len(self.waiting) // self.processes)
        chunk = [self.waiting.popleft() for _ in range(min(place.chunk_size(), share))]
        return [job for job in chunk if not job.answer.done()] or await self.next_chunk(place)

    async def answered(self, place: Place, chunk: Sequence[Job]) -> None:
        process = await place.ready(self.parts)
        begun = time.monotonic()
        try:
            answers = await process.score([job.question for job in chunk], self.timeout_s)
        except Lost as lost:
            place.process = None
            self.put_back([*chunk[: lost.group], *chunk[lost.group + 1 :]])
            self.blame(chunk[lost.group], lost)
            return
        place.pace_s = 0.5 * place.pace_s + 0.5 * (time.monotonic() - begun) / len(chunk)
        self.beats += len(chunk)
        for job, answer in zip(chunk, answers, strict=True):
            job.finish(answer)

    def blame(self, job: Job, lost: Lost) -> None:
        message = (
            f"{lost} on group {job.group}; its process is replaced; the group is tried again, then buried; mend the "
            "rule, "
            f"or raise reward.timeout_s if it is slow"
        )
        log.warning("rule process lost", group=job.group, reason=str(lost))
        job.fail(Transient(message))

    def put_back(self, jobs: Sequence[Job]) -> None:
        self.waiting.extendleft(reversed(jobs))
        self.added.set()

    async def close(self) -> None:
        """Kill all processes; groups that still wait are given back."""
        for server in self.servers:
            server.cancel()
        await asyncio.gather(*self.servers, return_exceptions=True)
        for place in self.places:
            if place.process:
                await place.process.kill()
        for job in self.waiting:
            job.fail(Transient(f"the rules are closing; group {job.group} is given back; nothing is to mend"))
        self.servers, self.places = [], []
        self.waiting.clear()
