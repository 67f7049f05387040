"""The scheduler: observe, reconcile, targets, plan, act, one sentence; again every few seconds.

For: `tidemill scheduler`. Not for: what it sees (`lookout`), where slots should be (`placements`) or which moves are
safe (`planner`). Any number of daemons is harmless: one holds the lease, the others watch it. When none lives, slots
go on unmoved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from broker.errors import TidemillError
from broker.fleet import Fleet, Lease, Served
from scheduler.charge import Charge
from scheduler.fleet_metrics import CycleMetrics
from scheduler.lookout import Said
from scheduler.observation import Observation
from scheduler.planner import Decision, Move

log = structlog.get_logger()

LEASE_S = 15.0
"""A leader that is silent for so long is replaced."""
BELL_S = 5.0
"""Longest a bell is waited for."""
FAILED_S = 5.0
"""Pause after a cycle that failed for no reason it knows."""

Ring = Callable[[str, str, int], None]
"""(node, pool, epoch): ring a slot's bell; that it is heard is not needed."""


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
    costs: dict[str, float] = field(default_factory=dict[str, float])
    """What moves cost, as the fleet's record says."""
    due: float = 0.0
    """When the next cycle is, monotonic seconds."""
    tells: CycleMetrics = field(default_factory=CycleMetrics)
    on_run: Callable[[Served], None] = lambda _: None
    """Called with the run it has in its charge from now on."""
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
                    pause_s = await self.cycle_when_due(self.charge)
            except TidemillError as error:
                self.once(f"waiting: {error}")
            except Exception as error:  # noqa: BLE001  a fault of ours or of an extension: said, and tried again
                pause_s = FAILED_S
                self.failed(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
        await self.drop_charge()
        if self.lease is not None:
            with contextlib.suppress(TidemillError):
                await self.fleet.resign(self.holder)

    def failed(self, error: Exception) -> None:
        """Say so: the next cycle may do better, and slots go on without."""
        sentence = f"waiting: a cycle failed ({type(error).__name__}: {error}); slots stay where they are"
        if sentence != self.said:
            log.error("a cycle failed", exc_info=error)
        self.once(sentence)

    async def leads(self) -> bool:
        """Whether it may decide now. A dry run needs no lease: it moves nothing."""
        if self.dry_run:
            return True
        answer = await self.fleet.lead(self.holder, LEASE_S)
        self.tells.leading = not isinstance(answer, str)
        if isinstance(answer, str):
            self.lease = None
            self.once(f"watching: {answer} leads")
            return False
        if self.lease != answer:
            self.lease = answer
            await self.drop_charge()  # what another leader learned meanwhile is read anew
            self.once(f"leading, epoch {answer.epoch}")
        return True

    async def has_run(self) -> bool:
        served = await self.fleet.served()
        if served is None:
            self.once("waiting: the fleet has no run to work for; `tidemill run --slots N` names one")
            return False
        if self.charge is not None and not self.charge.holds(served):
            await self.drop_charge()
        if self.charge is None:
            recorded = await self.fleet.costs()
            self.charge = await Charge.of(self.fleet, served)
            self.on_run(served)
            self.charge.lookout.rates.move_s.update({**self.costs, **recorded})
            self.costs = recorded
        return True

    async def cycle_when_due(self, charge: Charge) -> float:
        """Seconds to pause: cycles may be further apart than a lease lasts, which is renewed in between."""
        if time.monotonic() >= self.due:
            await self.cycle(charge)
            self.due = time.monotonic() + charge.settings.every_s
        return max(0.0, min(self.due - time.monotonic(), LEASE_S / 3))

    async def drop_charge(self) -> None:
        self.due = 0.0
        charge, self.charge = self.charge, None
        if charge is not None:
            await charge.close()

    async def cycle(self, charge: Charge) -> None:
        """One decision, and what follows from it."""
        now = time.time()
        observation, state = await charge.lookout.look(now)
        await self.note_costs(charge.lookout.rates.move_s)
        if state.finished:
            self.once(f"waiting: run {charge.served.run} has ended: {state.finished}")
            return
        decision = charge.decide(observation, is_open=state.is_open)
        reports = charge.lookout.reports
        await self.reconcile(observation, reports)
        done = [move for move in decision.moves if not self.dry_run and await self.act(move, decision, reports)]
        if not self.dry_run:
            await self.fleet.decided(facts(decision, done, self.costs))
        self.tells.cycle(observation, decision, done)
        if decision.moves or decision.sentence != self.said:
            self.once(decision.sentence)

    async def note_costs(self, measured: Mapping[str, float]) -> None:
        """What moves cost outlives its leader: the next one plans with it."""
        if measured != self.costs and self.lease is not None and await self.fleet.note_costs(measured, self.lease):
            self.costs = dict(measured)

    async def act(self, move: Move, decision: Decision, reports: Mapping[str, Said]) -> bool:
        """Write the order and ring; refused when the slot's record is not what was looked at."""
        answer = await self.fleet.assign(
            move.slot,
            move.target,
            seen=move.epoch - 1,
            reason=decision.sentence,
            by=f"scheduler {self.holder}",
            lease=self.lease,
            idle=move.idle,
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
                await self.rung(report, slot.belongs, slot.epoch)

    async def rung(self, report: Said, pool: str, epoch: int) -> None:
        node = str(report.get("node", ""))
        if not node or self.dry_run:
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(self.ring, node, pool, epoch), BELL_S)
        except Exception as error:  # noqa: BLE001  whatever a bell fails of: the slot reads its record anyway
            log.warning("a bell did not ring", node=node, reason=f"{type(error).__name__}: {error}")

    def once(self, sentence: str) -> None:
        """Say what is new."""
        if sentence != self.said:
            self.said = sentence
            self.say(sentence)


def facts(decision: Decision, done: Sequence[Move], costs: Mapping[str, float]) -> Mapping[str, Any]:
    """The decision as it is recorded: the moves are those that were really ordered."""
    numbers = {**decision.numbers, **{f"move_s.{pool}": round(seconds, 2) for pool, seconds in costs.items()}}
    return {**asdict(decision), "now": decision.at, "moves": [asdict(move) for move in done], "numbers": numbers}
