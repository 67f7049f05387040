"""One slot: obeys its record and keeps the controller of the wanted pool running on the slot's devices.

For: the supervisor that a Celery worker hosts (`slots`). Not for: where slots should be (`planner`), a process's life
(`controller_process`), or when a crashed one comes back (`respawn`).

The record on the server is what counts; a doorbell only makes the slot read it sooner. Once another supervisor has
taken the slot over, this one ends its controller and itself. Everything runs on one long-lived thread's event loop,
because the kernel ties a controller's life to the thread that spawned it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from broker.cancellation import together
from broker.errors import Fenced, Misconfigured, TidemillError
from broker.fleet import Fleet, Served, Wanted
from broker.redis_broker import RedisBroker
from scheduler.controller_process import ControllerProcess, spawned
from scheduler.devices import Devices
from scheduler.fleet_metrics import SlotMetrics
from scheduler.last_words import readable
from scheduler.lifecycle import Event, State, after, settled
from scheduler.respawn import Decision, Leave, StopRun
from scheduler.served_run import ServedRun
from scheduler.slot_report import report
from scheduler.spare_process import SpareProcess
from scheduler.tally import Tally

log = structlog.get_logger()

TICK_S = 0.05
"""Between two looks at the controller."""
LOOK_S = 1.0
"""Between two looks at the record when no bell rings; also how often it reports."""
SOON_S = 0.2
"""The same while a controller is expected to be ready any moment."""
SETTLED_S = 3.0
"""A controller that has served so long is past its own start: a spare may be made beside it."""
AGAIN_S = 1.0
"""Pause before a controller that left in good order is started again: its run may be over."""


@dataclass(slots=True)
class Slot:
    """A slot's supervisor."""

    id: str
    fleet: Fleet
    devices: Devices
    initial: str = ""
    """Its pool when the fleet has no record of it."""
    node: str = ""
    """Name of the worker that hosts it: where its bell hangs."""
    is_heard: bool = True
    """Whether the server answered last."""
    host: int = 0
    """Its number among the slot's hosts; 0 before the server has given it one."""
    wanted: Wanted = field(default_factory=Wanted)
    """The newest record or order known."""
    state: State = State.VACANT
    pool: str = ""
    """The controller's, or the one it moves to."""
    detail: str = ""
    """Why it is parked, or what it waits for."""
    since: float = field(default_factory=time.monotonic)
    """When this state began."""
    ordered: float = field(default_factory=time.monotonic)
    """When it was last told to go elsewhere."""
    process: ControllerProcess | None = None
    spare: SpareProcess = field(default_factory=SpareProcess)
    served: Served | None = None
    """The run it works for, and what is known of it."""
    known: ServedRun | None = None
    run: RedisBroker | None = None
    rests: bool = False
    """Its controller has left in good order by itself: the run has ended, until it is seen to go on."""
    tally: Tally = field(default_factory=Tally)
    moved: int = 0
    """Moves that ended in a controller that takes work; one that is started again after a failure is none."""
    move_s: float = 0.0
    """Seconds the last of them took once its run was there and the drain over."""
    not_before: float = 0.0
    drain_by: float = 0.0
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    tells: SlotMetrics = field(default_factory=SlotMetrics)

    async def supervise(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises Fenced when another supervisor has the slot now; its controller is dead then."""
        await together(self.watch(stop), self.follow())
        await self.leave()

    async def watch(self, stop: asyncio.Event) -> None:
        """consumes: ends and deadlines of its controller and its spare   produces: a controller of the wanted pool
        waits for: time   unblocked by: time; never by the server, which may be silent for long
        """
        while not stop.is_set():
            self.tick(time.monotonic())
            await asyncio.sleep(TICK_S)

    async def follow(self) -> None:
        """consumes: its record, bells, heartbeats   produces: what is wanted, reports
        waits for: the server; time or a bell   unblocked by: its answer, or the deadline for one; either
        """
        while True:
            self.bell.clear()
            await self.look()
            loads = self.state is State.MOVING and self.process is not None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SOON_S if loads else LOOK_S):
                    await self.bell.wait()

    def obey(self, wanted: Wanted) -> None:
        """Take up a newer record."""
        before, self.wanted = self.wanted, wanted
        if wanted.pool == self.pool and self.state not in (State.PARKED, State.DRAINING):
            return
        log.info("wanted", pool=wanted.pool, epoch=wanted.epoch, reason=wanted.reason, before=before.pool)
        self.ordered = time.monotonic()
        self.tells.leaves(self.pool, self.ordered)
        self.happened(Event.ASSIGNED if wanted.pool else Event.UNASSIGNED)

    def happened(self, event: Event) -> None:
        """One step of the life cycle, and what it asks for."""
        state = settled(after(self.state, event), self.wanted.pool)
        if state is State.DRAINING and self.process is None:
            state = settled(State.MOVING, self.wanted.pool)
        now = time.monotonic()
        if self.state is State.MOVING and state is State.SERVING and self.process and not self.process.exits:
            self.moved, self.move_s = self.moved + 1, now - self.process.started_at
            self.tells.arrived(self.pool, now, self.move_s)
        if state is not self.state:
            self.state, self.since = state, now
        if state is State.DRAINING and self.process is not None and self.drain_by == 0.0:
            self.drain_by = time.monotonic() + self.drain_s
            self.process.drain(time.monotonic(), self.drain_s)
        if state in (State.MOVING, State.VACANT):
            self.end_process_of_another()
            self.pool, self.drain_by = self.wanted.pool, 0.0

    def end_process_of_another(self) -> None:
        """One that still loads leaves at once; one that took work since it was last heard of finishes it."""
        if self.process is not None and self.process.wanted and self.pool != self.wanted.pool:
            self.process.drain(time.monotonic(), self.drain_s)

    def tick(self, now: float) -> None:
        """Watch the controller and the spare, or start them."""
        if self.process is not None:
            process, told, decision = self.process, not self.process.wanted, self.process.tick(now)
            if decision is not None:
                self.ended(decision, told=told)
            if process.is_over:
                self.process = None
        elif self.state is State.MOVING and self.pool and now >= self.not_before and not self.rests:
            self.spawn(now)
        self.spare.tick(now, settled=self.state is State.SERVING and now - self.since >= SETTLED_S)

    def ended(self, decision: Decision, *, told: bool) -> None:
        """What the end of the controller means for the slot; `told`: it was asked to leave."""
        self.tells.ended(self.pool, decision)
        self.tally.over()
        if self.state is State.DRAINING:
            self.happened(Event.OVERRAN if time.monotonic() >= self.drain_by else Event.LEFT)
        elif isinstance(decision, StopRun):
            said = readable(self.process.last_words(1)) if self.process else ""
            self.give_up(f"{decision.reason}: {said}" if said else decision.reason)
        elif isinstance(decision, Leave):
            if not told:
                self.not_before = time.monotonic() + AGAIN_S
                self.rests = True
                self.give_way()
            self.happened(Event.LEFT)
        else:
            self.happened(Event.CRASHED)

    def give_way(self) -> None:
        """A fenced controller was replaced: started again, it would throw the other out. So the slot is free for other
        work, unless a person said that this is its place.
        """
        assert self.process is not None
        if self.process.exits[-1].code == Fenced.exit_code and not self.wanted.pinned:
            self.wanted = replace(self.wanted, pool="")

    def spawn(self, now: float) -> None:
        """Start the wanted pool's controller on the served run, when there is one."""
        if self.known is None:
            self.detail = "no run to work for: `tidemill run --slots N` names one"
            return
        try:
            command = self.known.controller(self.pool, self.id, self.devices)
        except Misconfigured as error:
            self.give_up(str(error))
            return
        self.detail = ""
        self.process = ControllerProcess(
            command, self.known.limits, begin=lambda it: self.spare.become(it) or spawned(it)
        )
        self.process.start(now)
        self.bell.set()  # it may be ready any moment
        log.info("controller started", pool=self.pool, pid=self.process.pid)

    def give_up(self, reason: str) -> None:
        self.detail = reason
        self.happened(Event.GAVE_UP)

    @property
    def drain_s(self) -> float:
        """How long its controller may drain."""
        return self.known.drain_s if self.known else 1.0

    async def look(self) -> None:
        """Read record and run, hear what the controller says, and report. An absent server is waited for."""
        try:
            self.host = self.host or await self.fleet.host(self.id)
            known = (self.wanted.pool, self.wanted.epoch) if self.wanted.epoch else (self.initial, 1)
            record = await self.fleet.offer(self.id, *known, self.host)
            if record.epoch > self.wanted.epoch:
                self.obey(record)
            await self.hear()
            await self.fleet.say(self.id, self.status(), self.host)
            self.is_heard = True
        except Fenced:  # what it keeps running is nobody's any more
            self.spare.keep(None)
            if self.process is not None:
                self.process.fence()
            raise
        except TidemillError as error:
            if self.is_heard:
                log.warning("the fleet's server does not answer; asking again each second", reason=str(error))
            self.is_heard = False

    async def hear(self) -> None:
        """The served run, and the controller's own heartbeat in it."""
        served = await self.fleet.served()
        if served is None and self.served is not None:
            served = await self.fleet.remind(self.served)
        if served != self.served:
            await self.change_run(served)
        await self.rest()
        beat = await self.run.last_beat(self.id) if self.run is not None and self.process is not None else {}
        process, moves = self.process, self.state is State.MOVING
        if process is None or beat.get("pid", 0) != process.pid or (moves and not process.wanted):
            return  # it has ended, perhaps while this was asked, or belongs to a pool that was left
        self.tally.heard(self.pool, beat)
        if beat.get("progress", 0) > 0:
            process.note_progress()
        if beat.get("ready") and moves and self.pool == self.wanted.pool:
            self.happened(Event.READY)

    async def rest(self) -> None:
        """While the run is over no controller is started for it: each would only leave again."""
        if self.rests and self.run is not None:
            self.rests = bool(finished := (await self.run.look()).finished)
            if finished:
                self.detail = f"the run has ended ({finished}); the slot waits until it is resumed or another is served"

    async def change_run(self, served: Served | None) -> None:
        """Whoever works for another run is ended in good order; the next start works for this one."""
        run = await RedisBroker.connect(served.url, served.run) if served else None
        if self.run is not None:
            await self.run.close()
        if self.process is not None:
            self.process.drain(time.monotonic(), self.drain_s)
        self.served, self.run, self.known, self.rests = served, run, None, run is not None  # until it is seen to go on
        self.tells.works_for(served)
        try:
            self.known = ServedRun.read(served) if served else None
        except Misconfigured as error:
            self.give_up(str(error))
        else:
            if self.state is State.PARKED:  # what it was given up for is the other run's
                self.happened(Event.ASSIGNED if self.wanted.pool else Event.UNASSIGNED)
        self.spare.keep(self.known.spare_command(self.id, self.devices) if self.known and self.known.spare else None)

    def status(self) -> dict[str, Any]:
        return report(self, time.monotonic())

    async def leave(self) -> None:
        """The worker is told to stop: the controller drains by its deadline, then nothing is left."""
        self.spare.keep(None)
        if self.process is not None:
            self.process.drain(time.monotonic(), self.known.leave_s if self.known else 1.0)
        while self.spare.process is not None or (self.process is not None and not self.process.is_over):
            self.spare.tick(time.monotonic(), settled=False)
            if self.process is not None:
                self.process.tick(time.monotonic())
            await asyncio.sleep(TICK_S)
        self.process, self.state, self.detail = None, State.VACANT, "its worker has stopped"
        with contextlib.suppress(TidemillError):
            await self.fleet.say(self.id, {**self.status(), "state": str(State.DEAD)}, self.host)
        if self.run is not None:
            await self.run.close()
        await self.fleet.close()
