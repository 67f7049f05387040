"""What slots and schedulers tell Prometheus.

For: the endpoints of a slot's supervisor and of the scheduler. Not for: a controller's own (`broker.metrics_endpoint`),
or reports, on which decisions stand (`slot_report`, `lookout`).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from broker import telemetry
from broker.errors import Misconfigured
from broker.fleet import Served
from broker.measures import (
    CONTROLLER_ENDS,
    CYCLES,
    LEADING,
    MOVE_SECONDS,
    MOVES,
    SLOT_STATE,
    SLOTS,
    SLOTS_WANTED,
    SPARE_READY,
)
from broker.metrics import Facts, Metrics
from broker.metrics_endpoint import Endpoint
from broker.settings import run_folder_settings
from scheduler.observation import Observation
from scheduler.planner import Decision, Move
from scheduler.respawn import Decision as Followed
from scheduler.respawn import Leave, StopRun

if TYPE_CHECKING:
    from scheduler.slot import Slot

log = structlog.get_logger()


@dataclass(slots=True)
class CycleMetrics:
    """What the scheduler saw and did."""

    metrics: Metrics = field(default_factory=Metrics)
    leading: bool = False
    seen: Observation | None = None
    decided: Decision | None = None

    def __post_init__(self) -> None:
        self.metrics.ask(self.facts)

    def cycle(self, seen: Observation, decided: Decision, done: Sequence[Move]) -> None:
        """One cycle, with the moves that were really ordered."""
        self.seen, self.decided = seen, decided
        self.metrics.count(CYCLES)
        for move in done:
            self.metrics.count(MOVES, source=move.source or "none", target=move.target or "none")

    def facts(self) -> Facts:
        """The last look; one that watches has none of its own."""
        yield LEADING, {}, self.leading
        if not self.leading or self.seen is None or self.decided is None:
            return
        for (pool, state), slots in Counter((one.pool, str(one.state)) for one in self.seen.slots).items():
            yield SLOTS, {"pool": pool or "none", "state": state}, slots
        for pool, slots in self.decided.wanted.items():
            yield SLOTS_WANTED, {"pool": pool}, slots


@dataclass(slots=True)
class SlotMetrics:
    """What a slot's supervisor did."""

    metrics: Metrics = field(default_factory=Metrics)
    on_run: Callable[[Served], None] = lambda _: None
    """Called with the run it works for from now on."""
    source: str = ""
    """The pool it was ordered away from."""
    ordered: float | None = None
    """When; None once it has arrived, for what starts after that obeys no order."""

    def leaves(self, pool: str, now: float) -> None:
        """It was ordered elsewhere."""
        self.source, self.ordered = pool, now

    def arrived(self, pool: str, now: float, move_s: float) -> None:
        """Its controller takes work, `move_s` after it was started."""
        log.info("serving", pool=pool, move_s=round(move_s, 3))
        if self.ordered is not None:
            self.metrics.observe(MOVE_SECONDS, now - self.ordered, source=self.source or "none", target=pool)
            self.ordered = None

    def ended(self, pool: str, decision: Followed) -> None:
        """Its controller has ended: when the next one takes work says how long a crash costs, not a move."""
        self.ordered = None if followed(decision) == "started_again" else self.ordered
        log.info("controller ended", pool=pool, decision=type(decision).__name__, reason=decision.reason)
        self.metrics.count(CONTROLLER_ENDS, pool=pool or "none", followed=followed(decision))

    def works_for(self, served: Served | None) -> None:
        if served is not None:
            self.on_run(served)

    def about(self, slot: Slot) -> None:
        """Say at each scrape what the slot is then."""
        self.metrics.ask(lambda: slot_facts(slot))


def slot_facts(slot: Slot) -> Facts:
    """A slot now."""
    yield SLOT_STATE, {"pool": slot.pool or "none", "state": str(slot.state)}, 1
    yield SPARE_READY, {}, slot.spare.is_ready


@contextlib.contextmanager
def telling(metrics: Metrics, *, role: str, process: str, slot: str = "") -> Generator[Callable[[Served], None]]:
    """Log and metrics of a process that belongs to a fleet. Called with a run it joins that run: from then on its lines
    stand in the run's folder too, and Prometheus finds it.
    """
    endpoint = Endpoint(metrics, role=role, process=process, slot=slot)

    def join(served: Served) -> None:
        try:
            raw = run_folder_settings(Path(served.folder))
            telemetry.join(Path(served.folder), raw)
            endpoint.join(Path(served.folder), raw)
        except Misconfigured as error:
            log.warning("telling nobody of the run", reason=str(error))

    try:
        yield join
    finally:
        endpoint.close()


def followed(decision: Followed) -> str:
    """What the end of a process led to, in a word."""
    return (
        "stayed_ended" if isinstance(decision, StopRun) else "left" if isinstance(decision, Leave) else "started_again"
    )
