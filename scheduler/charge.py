"""The run that a scheduler has in its charge: its settings, pools and placement, and the decisions made for it.

For: reading them from the run's folder, and turning one look into a decision. Not for: leading, acting or waiting
(`daemon`), looking (`lookout`), or which moves are safe (`planner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from broker.errors import Misconfigured
from broker.fleet import Fleet, Served
from broker.redis_broker import RedisBroker
from broker.settings import load_section, run_folder_settings
from scheduler.lookout import Lookout
from scheduler.observation import Observation
from scheduler.placements import create
from scheduler.placements.base import Placement, Targets
from scheduler.planner import Decision, Rules, plan
from scheduler.pools import Pool
from scheduler.rates import Rates
from scheduler.served_run import pools_of
from scheduler.settings import SchedulerSection

log = structlog.get_logger()


@dataclass(slots=True)
class Charge:
    """One run, and how it is scheduled."""

    served: Served
    raw: dict[str, Any]
    """Its settings, as read."""
    pools: Sequence[Pool]
    settings: SchedulerSection
    placement: Placement
    lookout: Lookout
    failure: str = ""
    """Of the placement, while it lasts: so it is logged once."""

    @classmethod
    async def of(cls, fleet: Fleet, served: Served) -> Charge:
        """Raises Misconfigured for a folder that is no run's, or settings that say nothing a scheduler can use;
        Unavailable when a server does not answer.
        """
        raw = run_folder_settings(Path(served.folder))
        try:
            settings = load_section(SchedulerSection, "scheduler", raw["scheduler"])
            pools = pools_of(raw)
            groups, staleness = int(raw["train"]["groups"]), int(raw["train"]["staleness"])
        except Misconfigured:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise unusable(served, error) from error
        placement = create(settings)
        run = await RedisBroker.connect(served.url, served.run)  # last: whoever fails above leaves nothing open
        rates = Rates(memory_s=settings.memory_s)
        lookout = Lookout(fleet, run, groups=groups, staleness=staleness, rates=rates)
        return cls(served, raw, pools, settings, placement, lookout)

    def holds(self, served: Served) -> bool:
        """Whether this is still the run that is served, and its folder still says what was read."""
        try:
            return served == self.served and run_folder_settings(Path(served.folder)) == self.raw
        except Misconfigured:
            return False

    async def close(self) -> None:
        await self.lookout.run.close()

    def decide(self, observation: Observation, *, is_open: bool) -> Decision:
        """What to do about what is seen."""
        targets = self.targets(observation) if is_open else opening(observation, self.pools)
        return plan(observation, self.pools, targets, Rules.of(self.settings))

    def targets(self, observation: Observation) -> Targets:
        """The placement's word. One that fails costs no more than its word: slots stay, minima are still kept, and the
        story says so.
        """
        try:
            targets = self.placement.targets(observation, self.pools)
        except Exception as error:
            told = (
                f"placement {self.settings.placement} failed ({type(error).__name__}: {error}), nothing is moved for it"
            )
            if told != self.failure:
                self.failure = told
                log.exception("the placement failed", placement=self.settings.placement)
            return Targets(split=observation.serving(), reason=told)
        self.failure = ""
        return targets


def unusable(served: Served, error: Exception) -> Misconfigured:
    problem = f"nothing is said of {error}" if isinstance(error, KeyError) else str(error)
    return Misconfigured(
        f"{served.folder}: its settings cannot be used ({problem}); slots stay where they are; put back what the run "
        "wrote, or let the fleet serve another run"
    )


def opening(observation: Observation, pools: Sequence[Pool]) -> Targets:
    """A closed run has no work and no rates: it needs the last pool's controller to open it; others are made ready."""
    rest, last = pools[:-1], pools[-1]
    each, more = divmod(max(0, observation.usable - 1), max(1, len(rest)))
    split = {pool.name: each + (at < more) for at, pool in enumerate(rest)}
    return Targets(split={**split, last.name: 1}, reason=f"only {last.name} opens a closed run", insists=True)
