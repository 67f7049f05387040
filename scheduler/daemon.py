"""The scheduler: observe, reconcile, targets, plan, act, one sentence; again every few seconds.

For: `tidemill scheduler`. Not for: what it sees (`lookout`), where slots should be (`placements`) or which moves are
safe (`planner`). Any number of daemons is harmless: one holds the lease, the others watch it. When none lives, slots
go on unmoved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import structlog

from broker.errors import TidemillError
from broker.fleet import Fleet, Lease, Served
from broker.redis_broker import RedisBroker
from broker.settings import load_section, run_folder_settings
from scheduler.lookout import Lookout, Said
from scheduler.observation import Observation
from scheduler.placements import create
from scheduler.placements.base import Placement, Targets
from scheduler.planner import WINDOW_S, Decision, Move, Rules, plan
from scheduler.pools import Pool
from scheduler.served_run import pools_of
from scheduler.settings import SchedulerSection

log = structlog.get_logger()

LEASE_S = 15.0
"""A leader that is silent for so long is replaced."""

Ring = Callable[[str, str, int], None]
"""(node, pool, epoch): ring a slot's bell; that it is heard is not needed."""


@dataclass(slots=True)
class Charge:
    """The run that is scheduled, and how."""

    served: Served
    pools: Sequence[Pool]
    settings: SchedulerSection
    placement: Placement
    lookout: Lookout

    @classmethod
    async def of(cls, fleet: Fleet, served: Served) -> Charge:
        raw = run_folder_settings(Path(served.folder))
        settings = load_section(SchedulerSection, "scheduler", raw["scheduler"])
        run = await RedisBroker.connect(served.url, served.run)
        train = raw["train"]
        lookout = Lookout(fleet, run, groups=int(train["groups"]), staleness=int(train["staleness"]))
        return cls(served, pools_of(raw), settings, create(settings), lookout)

    @property
    def rules(self) -> Rules:
        return Rules(
            horizon_s=self.settings.horizon_s,
            dwell_s=self.settings.dwell_s,
            switching=self.settings.switching,
            drain_s=self.settings.drain_s,
        )


@dataclass(slots=True)
class Daemon:
    """One scheduler process."""

    fleet: Fleet
    holder: str
    """Its name in the lease: no two processes have the same."""
    ring: Ring
    say: Callable[[str], None]
    dry_run: bool = False
    charge: Charge | None = None
    lease: Lease | None = None
    moves: deque[float] = field(default_factory=lambda: deque[float](maxlen=10_000))
    said: str = ""

    async def run(self, stop: asyncio.Event) -> None:
        """consumes: reports, backlogs   produces: moves, decisions
        waits for: time, the lease   unblocked by: time, the end of the leader
        """
        while not stop.is_set():
            pause_s = 1.0
            try:
                if await self.leads() and await self.has_run():
                    assert self.charge is not None
                    await self.cycle(self.charge)
                    pause_s = self.charge.settings.every_s
            except TidemillError as error:
                self.once(f"waiting: {error}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
        if self.lease is not None:
            with contextlib.suppress(TidemillError):
                await self.fleet.resign(self.holder)

    async def leads(self) -> bool:
        """Whether it may decide now. A dry run needs no lease: it moves nothing."""
        if self.dry_run:
            return True
        answer = await self.fleet.lead(self.holder, LEASE_S)
        if isinstance(answer, str):
            self.lease = None
            self.once(f"watching: {answer} leads")
            return False
        if self.lease != answer:
            self.lease = answer
            self.moves = await self.remembered()
            self.once(f"leading, epoch {answer.epoch}")
        return True

    async def remembered(self) -> deque[float]:
        """When moves were ordered lately, whoever led."""
        now = time.time()
        story = await self.fleet.decisions(1000)
        return deque([one["at"] for one in story for _ in one["moves"] if now - one["at"] < WINDOW_S], maxlen=10_000)

    async def has_run(self) -> bool:
        served = await self.fleet.served()
        if served is None:
            self.once("waiting: the fleet has no run to work for; `tidemill run --slots N` names one")
            return False
        if self.charge is None or self.charge.served != served:
            if self.charge is not None:
                await self.charge.lookout.run.close()
            self.charge = await Charge.of(self.fleet, served)
        return True

    async def cycle(self, charge: Charge) -> None:
        """One decision, and what follows from it."""
        now = time.time()
        observation, state = await charge.lookout.look(now, self.moves)
        if state.finished:
            self.once(f"waiting: run {charge.served.run} has ended: {state.finished}")
            return
        decision = decide(observation, charge, is_open=state.is_open)
        reports = charge.lookout.reports
        await self.reconcile(observation, reports)
        done = [move for move in decision.moves if not self.dry_run and await self.act(move, decision, reports)]
        self.moves.extend(now for _ in done)
        if not self.dry_run:
            await self.fleet.decided(facts(decision, done))
        if decision.moves or decision.sentence != self.said:
            self.once(decision.sentence)

    async def act(self, move: Move, decision: Decision, reports: Mapping[str, Said]) -> bool:
        """Write the order and ring; refused when the slot's record is not what was looked at."""
        answer = await self.fleet.assign(
            move.slot,
            move.target,
            seen=move.epoch - 1,
            reason=decision.sentence,
            by=f"scheduler {self.holder}",
            lease=self.lease,
        )
        if answer.answer != "done":
            log.info("not moved", slot=move.slot, target=move.target, answer=answer.answer)
            return False
        await self.rung(reports.get(move.slot, {}), move.target, answer.epoch)
        return True

    async def reconcile(self, observation: Observation, reports: Mapping[str, Said]) -> None:
        """A bell may be lost: a slot that obeys an older record than it has is rung again."""
        for slot in observation.slots:
            report = reports.get(slot.id, {})
            if slot.epoch > int(report.get("epoch", slot.epoch)):
                await self.rung(report, slot.bound_for or slot.pool, slot.epoch)

    async def rung(self, report: Said, pool: str, epoch: int) -> None:
        node = str(report.get("node", ""))
        if node and not self.dry_run:
            await asyncio.to_thread(self.ring, node, pool, epoch)

    def once(self, sentence: str) -> None:
        """Say what is new."""
        if sentence != self.said:
            self.said = sentence
            self.say(sentence)


def decide(observation: Observation, charge: Charge, *, is_open: bool) -> Decision:
    targets = charge.placement.targets(observation, charge.pools) if is_open else opening(observation, charge.pools)
    return plan(observation, charge.pools, targets, charge.rules)


def opening(observation: Observation, pools: Sequence[Pool]) -> Targets:
    """A closed run has no work and no rates: it needs the last pool's controller to open it; others are made ready."""
    rest, last = pools[:-1], pools[-1]
    each, more = divmod(max(0, observation.usable - 1), max(1, len(rest)))
    split = {pool.name: each + (at < more) for at, pool in enumerate(rest)}
    return Targets(split={**split, last.name: 1}, reason=f"only {last.name} opens a closed run", insists=True)


def facts(decision: Decision, done: Sequence[Move]) -> Mapping[str, Any]:
    """The decision as it is recorded: the moves are those that were really ordered."""
    return {**asdict(decision), "now": decision.at, "moves": [asdict(move) for move in done]}
