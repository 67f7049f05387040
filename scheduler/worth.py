"""What going from one division of slots to another is worth: useful work gained, less the work that moving costs.

For: placements that weigh, and the planner, in one and the same way. Not for: choosing.

A move may be for good, or for a while and back: slots that time-share (`D_s` under one slot, or fewer slots than pools)
gain only until a backlog is used up. So the gain is looked at after each step of the forecast, as a rate; one that is
not kept to the end pays the way back too. A slot that finds no work loses none by moving. Where every pool has slots of
its own, backlogs only hide for a while which pool is scarce: `long_run_s` says what is gained once they have settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.forecast import Forecast, Split, Stage, forecast, turnover_s
from scheduler.observation import Observation, Service
from scheduler.pools import Pool

TURNOVERS = 2.0
"""A forecast follows the open groups for so many rounds at most: later everything repeats."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Forecasts of one observation, all over the same time."""

    line: Sequence[Stage]
    groups: int
    surviving: float
    horizon_s: float
    """Within which a move must bring back what it costs."""
    soon_s: float
    ahead_s: float
    """How far the backlogs are followed."""

    def of(self, split: Split) -> Forecast:
        return forecast(self.line, split, self.groups, self.ahead_s, self.soon_s, surviving=self.surviving)

    def gain_s(self, before: Split, now: Forecast, after: Split, then: Forecast) -> float:
        """Slot-seconds of useful work within the horizon that `after` gains over `before`, what moving costs taken off;
        at least 0 moves are counted each way."""
        there, back = self.price_s(before, now, after), self.price_s(after, then, before)
        rates: list[float] = []
        for step, (old, new) in enumerate(zip(now.work_by[:-1], then.work_by[:-1], strict=True), start=1):
            seconds = step * now.step_s
            if seconds >= self.soon_s:
                rates.append((new - old - there - back) / seconds)
        for_good = (then.work_by[-1] - now.work_by[-1]) / self.ahead_s - there / self.horizon_s
        return max([for_good, *rates]) * self.horizon_s

    def long_run_s(self, before: Split, now: Forecast, after: Split) -> float:
        """What `after` gains over the horizon once all backlogs have settled: throughput is that of the scarcest pool,
        θ(n) = min n_s/D_s, and an error of ε of all slots costs ε over that pool's share. 0 where pools share slots."""
        old, new = (min(split.get(one.pool.name, 0) / one.demand for one in self.line) for split in (before, after))
        if old <= 0 or new <= 0:
            return 0.0
        return (1 - old / new) * sum(after.values()) * self.horizon_s - self.price_s(before, now, after)

    def price_s(self, before: Split, now: Forecast, after: Split) -> float:
        """Slot-seconds of useful work lost while the slots that `after` has more of are on their way."""
        more = {one.pool.name: max(0, after.get(one.pool.name, 0) - before.get(one.pool.name, 0)) for one in self.line}
        less = {one.pool.name: max(0, before.get(one.pool.name, 0) - after.get(one.pool.name, 0)) for one in self.line}
        leaving = sum(less.values())
        if not leaving:
            return 0.0
        useful = sum(count * now.busy[name] for name, count in less.items()) / leaving
        return useful * sum(more[one.pool.name] * move_s(one.pool, one.service) for one in self.line)


def outlook(line: Sequence[Stage], observation: Observation, slots: int, horizon_s: float, soon_s: float) -> Outlook:
    return Outlook(
        line=line,
        groups=observation.groups,
        surviving=observation.surviving,
        horizon_s=horizon_s,
        soon_s=soon_s,
        ahead_s=min(horizon_s, TURNOVERS * turnover_s(line, slots, observation.cap)),
    )


def move_s(pool: Pool, service: Service | None) -> float:
    """Seconds a slot is lost for when it moves to the pool: as a person said, or as measured."""
    return pool.move_cost or (service.move_s if service else 0.0)
