"""Admits prompts as places become free, held-out prompts when a version is to be measured, and lost ones again.

For: the shell between a mixture of sources and the broker. Not for: how many may be open (the admission script knows), or
which prompt a cursor means (`prompt_sources`). Any number of feeders is harmless: the cursor is compared and set.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from broker.contract import Evaluation, FeederBroker
from broker.errors import Backpressure, Misconfigured, Poison, Reset, Unavailable
from broker.messages import Group, Kind, Prompt
from broker.settings import RunSection
from broker.telemetry import Meter
from producers.encoding import Encoder
from producers.prompt_sources import Drawn, Mixture, create_sources
from producers.settings import PromptsSection, RolloutSection

log = structlog.get_logger()

LOOK_EVERY_S = 0.02
"""Between looks at a full open set: short against a step, long against a look's cost."""

AT_ONCE = 64
"""Groups offered in one script: a round trip is shared, a script stays short."""


async def run(
    broker: FeederBroker,
    *,
    folder: Path,
    run: RunSection,
    prompts: PromptsSection,
    rollout: RolloutSection,
    meter: Meter,
    stop: asyncio.Event,
) -> None:
    """Feed until the run is over or we are stopped, entering it anew whenever the server lost or re-opened it."""
    maker = GroupMaker(Encoder(folder / "model"), create_sources(prompts, seed=run.seed), prompts, rollout, run.seed)
    while not stop.is_set():
        state = await broker.enter(timeout_s=600)
        if state.finished:
            return
        try:
            await Feeder(broker, maker, prompts, meter, stop).feed()
        except (Reset, Unavailable) as lost:
            log.warning("entering the run again", reason=str(lost))
        else:
            return


@dataclass(frozen=True, slots=True)
class GroupMaker:
    """Prompts become groups; the same id always becomes the same group."""

    encoder: Encoder
    source: Mixture
    prompts: PromptsSection
    rollout: RolloutSection
    run_seed: int

    def training(self, drawn: Drawn) -> Group:
        return self.group(drawn.id, "train", drawn, size=self.rollout.group_size, temperature=self.rollout.temperature)

    def held_out(self, version: int, place: int, drawn: Drawn) -> Group:
        of = self.prompts.eval
        return self.group(f"eval/{version}/{place}", "eval", drawn, size=of.group_size, temperature=of.temperature)

    def by_id(self, group: str) -> Group:
        """Raises Misconfigured for an id this source does not make (the run's settings were changed)."""
        try:
            return self.training(self.source.of(group))
        except (KeyError, ValueError, IndexError):
            raise Misconfigured(f"group {group} is not one of this source's; stopping; resume with the settings the run began with") from None

    def group(self, group: str, kind: Kind, drawn: Drawn, *, size: int, temperature: float) -> Group:
        """Raises Misconfigured for a prompt that leaves no room for its rollout."""
        actions = self.encoder.context_of(drawn.prompt.text)
        if not len(actions) or len(actions) + self.rollout.max_tokens > self.encoder.context:
            raise Misconfigured(
                f"prompt {drawn.id} has {len(actions)} tokens; with rollout.max_tokens = {self.rollout.max_tokens} the model's "
                f"{self.encoder.context} are exceeded (or it is empty); the run stops before it; shorten or remove the prompt, or lower max_tokens"
            )
        prompt = Prompt(
            text=drawn.prompt.text,
            actions=actions,
            size=size,
            seed=seed_of(self.run_seed, group),
            temperature=temperature,
            max_actions=self.rollout.max_tokens,
            stop=self.encoder.stop_ids(self.rollout.stop),
            task=drawn.task,
            answer=drawn.prompt.answer,
            meta=drawn.prompt.meta,
        )
        return Group(id=group, kind=kind, prompt=prompt)


@dataclass(slots=True)
class Feeder:
    """One stay in the run."""

    broker: FeederBroker
    maker: GroupMaker
    prompts: PromptsSection
    meter: Meter
    stop: asyncio.Event
    cursor: int = 0
    room: int = 1
    ready: list[Group] = field(default_factory=list[Group])
    done: bool = False
    held_out: Sequence[Drawn] = ()

    async def feed(self) -> None:
        """consumes: a mixture of sources   produces: `prompts`
        waits for: a free place, or a version to measure   unblocked by: a group that closes, the trainer
        """
        self.cursor = (await self.broker.books()).cursor
        self.held_out = self.maker.source.held_out(self.prompts.eval.size) if self.prompts.eval.size else ()
        await self.bring_back(await self.broker.missing())
        looks = 0
        while not self.stop.is_set():
            try:
                measured = await self.measure() if looks % 5 == 0 else 0
                admitted = 0 if self.done else await self.admit()
            except Backpressure as full:
                log.warning("waiting", reason=str(full))
                measured = admitted = 0
            if looks % 25 == 0 and (await self.broker.look()).finished:
                return
            if not admitted and not measured:
                self.meter.stage = "the source is exhausted" if self.done else "the open set is full"
                await self.a_while()
            looks += 1

    async def a_while(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), LOOK_EVERY_S)

    async def admit(self) -> int:
        """Offer what fits; prompts are drawn ahead while there is no room."""
        with self.meter.busy():
            self.draw(AT_ONCE)
        offered = self.ready[: min(AT_ONCE, self.room)]
        answer = await self.broker.admit(self.cursor, str(self.cursor + len(offered)), offered)
        moved = answer.cursor - self.cursor
        self.ready = self.ready[moved:] if 0 <= moved <= len(self.ready) else []
        self.cursor, self.room = answer.cursor, answer.room
        self.meter.items += answer.admitted
        self.meter.progress += answer.admitted
        if answer.admitted:
            self.meter.stage = "admitting"
        if not self.ready and self.maker.source.ended(self.cursor):
            await self.broker.exhausted(self.cursor)
            self.done = True
            log.info("the source is exhausted", prompts=self.cursor)
        return answer.admitted

    def draw(self, ahead: int) -> None:
        """Raises Misconfigured for a prompt that does not parse or is too long."""
        while len(self.ready) < ahead and not self.maker.source.ended(self.cursor + len(self.ready)):
            try:
                self.ready.append(self.maker.training(self.maker.source.at(self.cursor + len(self.ready))))
            except Poison as bad:
                raise Misconfigured(str(bad)) from bad

    async def measure(self) -> int:
        """Admit held-out prompts for every version the trainer wants measured."""
        return sum([await self.admit_held_out(one) for one in await self.broker.evaluations() if one.admitted < one.wanted])

    async def admit_held_out(self, one: Evaluation) -> int:
        places = range(one.admitted, min(one.wanted, len(self.held_out), one.admitted + 4 * AT_ONCE))
        groups = [self.maker.held_out(one.version, place, self.held_out[place]) for place in places]
        if not groups:
            raise Misconfigured(
                f"version {one.version} is to be measured on {one.wanted} held-out prompts, the source has {len(self.held_out)}; "
                "stopping; lower prompts.eval.size"
            )
        return (await self.broker.admit_eval(one.version, one.admitted, groups)).admitted

    async def bring_back(self, lost: Sequence[str]) -> None:
        """Groups that a restored run knows to be open get their entries again."""
        for begin in range(0, len(lost), AT_ONCE):
            revived = await self.broker.readmit([self.maker.by_id(group) for group in lost[begin : begin + AT_ONCE]])
            log.warning("admitted again after the server lost them", groups=revived)


def seed_of(run_seed: int, group: str) -> int:
    """31 bits from the run's seed and the group's id: the same rollouts from the same weights, whoever samples them."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{group}".encode()).digest()[:4], "little") >> 1
