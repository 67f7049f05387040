"""Admits prompts as places become free, held-out prompts when a version is to be measured, and lost ones again.

For: the shell between a mixture of sources and the broker. Not for: how many may be open (the admission script knows),
or what a group is made of (`prompt_groups`). Any number of feeders is harmless: the cursor is compared and set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from broker.cancellation import together
from broker.contract import Evaluation, FeederBroker
from broker.entering import entered
from broker.errors import Backpressure, Reset, Unavailable
from broker.messages import Group
from broker.reports import SERVER_FULL, TOO_MANY_DEAD
from broker.role_process import loaded
from broker.settings import RunSection
from broker.telemetry import Meter
from producers.prompt_groups import PromptGroups
from producers.settings import PromptsSection, RolloutSection

log = structlog.get_logger()

POLL_S = 0.02
"""Between tries at a full open set: short against a step, long against a try's cost."""

VERSION_S = 5.0
"""How long one question for the next version waits."""

LOOK_S = 0.1
"""Between looks at what else the run wants: evaluations, its end."""

FULL_S = 0.5
"""Between tries at a server that is at its memory limit."""

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
    enter_s: float = 600.0,
) -> None:
    """Feed the run in `folder` from its settings until it is over or `stop` is set.

    Raises Misconfigured before anything is admitted, Unavailable when the run does not open within `enter_s`.
    """
    meter.stage = "reading prompts"
    groups = await loaded(stop, PromptGroups.of, folder / "model", run, prompts, rollout)
    log.info("prompts read")
    meter.loaded()
    await feed(broker, groups, meter=meter, stop=stop, enter_s=enter_s)


async def feed(
    broker: FeederBroker, groups: PromptGroups, *, meter: Meter, stop: asyncio.Event, enter_s: float = 600.0
) -> None:
    """consumes: a run   produces: stays in it
    waits for: an open run   unblocked by: a trainer that opens it, anew after a restart or restore
    """
    while not stop.is_set():
        meter.stage = "waiting for the run to open"
        state = await entered(broker, stop, enter_s)
        if state is None or state.finished:
            return
        try:
            await Feeding(broker, groups, meter, stop).run()
        except (Reset, Unavailable) as lost:
            log.warning("entering the run again", reason=str(lost))
        else:
            return


@dataclass(slots=True)
class Feeding:
    """One stay in the run."""

    broker: FeederBroker
    groups: PromptGroups
    meter: Meter
    stop: asyncio.Event
    cursor: int = 0
    room: int = 1
    """Places free for training groups when last heard."""
    refused_at: int = -1
    """Cursor at which a group was offered for which there was no place."""
    eval_room: int = 1
    lost: Sequence[str] = ()
    """Open groups without an entry, to be admitted again."""
    said_exhausted: bool = False
    stopped: bool = False
    """Too many groups are buried: asked for a place seldom, until there is one."""
    looked_at: float = -LOOK_S
    places_freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until the run ends."""
        await together(self.feed(), self.hear_of_versions())

    async def hear_of_versions(self) -> None:
        """consumes: versions   produces: `places_freed`   waits for: the next version   unblocked by: the trainer

        A version closes its groups. Asked for every `POLL_S` alone, their places would be free for half of that on
        average, which a short step notices.
        """
        known = -1
        while True:
            found = await self.broker.wait_version(known, block_s=VERSION_S)
            if found is not None:
                known = found.version
                self.places_freed.set()

    async def feed(self) -> None:
        """consumes: a mixture of sources   produces: `prompts`
        waits for: a free place, a version to measure   unblocked by: a group that closes, the trainer, and whoever
        replays or drops buried groups when there are too many
        """
        books = await self.broker.books()
        self.groups.check_cursor(books.cursor_value)
        self.cursor = books.cursor
        self.lost = await self.broker.missing()
        while not self.stop.is_set():
            try:
                moved = await self.bring_back() or await self.admit()
                if time.monotonic() - self.looked_at >= LOOK_S:
                    if (await self.broker.look()).finished:
                        return
                    moved |= await self.measure()
            except Backpressure as full:
                log.warning("waiting", reason=str(full), stream="prompts")
                self.meter.stage = SERVER_FULL
                await self.pause(FULL_S)
                continue
            if not moved:
                await self.pause(FULL_S if self.stopped else POLL_S)

    async def admit(self) -> bool:
        """Offer as many groups as there was room for; whether there is more to do at once.

        A group that was refused is not made, packed and sent again to ask for a place: an offer of none asks too.
        """
        asking, offered = self.refused_at == self.cursor and not self.room, list[Group]()
        if not asking:
            with self.meter.busy():
                offered = self.groups.training(self.cursor, max(1, min(self.room, AT_ONCE)))
            if not offered:
                await self.say_exhausted()
                return False
        value = self.groups.cursor_value(self.cursor + len(offered))
        answer = await self.broker.admit(self.cursor, value, offered)
        moved = answer.cursor != self.cursor
        self.cursor, self.room = answer.cursor, answer.room
        self.refused_at = -1 if moved else self.cursor
        self.count(answer.admitted)
        self.meter.stage = "admitting" if moved else TOO_MANY_DEAD if answer.stopped else "the open set is full"
        self.say_stopped(answer.stopped)
        return moved or (asking and self.room > 0)

    def say_stopped(self, stopped: bool) -> None:
        """Once when it begins, and once when it ends."""
        if stopped and not self.stopped:
            log.warning("nothing new is admitted: too many groups are buried", mend="tidemill inspect dead says why")
        elif self.stopped and not stopped:
            log.info("admitting again")
        self.stopped = stopped

    async def say_exhausted(self) -> None:
        """The last batch may be short; we stay for evaluations and for groups to bring back."""
        self.meter.stage = "the sources are exhausted"
        if not self.said_exhausted:
            await self.broker.exhausted(self.cursor)
            self.said_exhausted = True
            log.info("the sources are exhausted", prompts=self.cursor)

    async def measure(self) -> bool:
        """Admit held-out prompts for every version the trainer wants measured; whether any entered."""
        wanted = [one for one in await self.broker.evaluations() if one.admitted < one.wanted]
        entered = [await self.admit_held_out(one) for one in wanted]
        if not any(entered):  # else there is more to offer at once
            self.looked_at = time.monotonic()
        return any(entered)

    async def admit_held_out(self, one: Evaluation) -> int:
        until = min(one.wanted, one.admitted + max(1, min(self.eval_room, AT_ONCE)))
        groups = self.groups.measuring(one.version, range(one.admitted, until))
        answer = await self.broker.admit_eval(one.version, one.admitted, groups)
        self.eval_room = answer.room
        self.count(answer.admitted)
        return answer.admitted

    async def bring_back(self) -> bool:
        """Groups that a restored run knows to be open get their entries again; whether there were any."""
        if not self.lost:
            return False
        some = self.lost[:AT_ONCE]
        back = await self.broker.readmit([self.groups.by_id(group) for group in some])
        self.lost = self.lost[AT_ONCE:]
        self.count(back)
        log.warning("admitted again after the server lost them", groups=back, left=len(self.lost))
        return True

    def count(self, admitted: int) -> None:
        self.meter.items += admitted
        self.meter.progress += admitted

    async def pause(self, seconds: float) -> None:
        """Until it is over, places are freed, or we are to stop."""
        waiting = [asyncio.create_task(one.wait()) for one in (self.stop, self.places_freed)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        self.places_freed.clear()
