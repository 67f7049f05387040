"""`pressure`: slots go where work presses, before those that run out of it stand idle.

For: the default placement. Not for: safety and the price of each move (`planner`).

A pool's *pressure* is the slot-seconds of work it will find within the horizon, its own backlog and what comes from the
pool before it, over the slot-seconds it has; under 1 it idles. As in maximum pressure (Dai and Lin, 2005) only a pool's
own and next buffers count; what they hold is followed forward (`forecast`), because admission bounds them. Rules:

- *feed-forward*: where every pool fills at least one slot, the fluid split n*_s = N·D_s/ΣD is where slots belong,
  unless the pool that should limit is idle: then the measured costs do not tell everything, and backlogs decide;
- *forecast*: once slots are about to run out of work, the moves that add most useful work by the forecast. Not where
  whole slots come close (`CLOSE`) to the fluid split: there idleness passes by itself, and following it chases noise;
- *gain over cost*: only moves that bring back more than they cost within the horizon;
- *switching curve* (Celik and others, 2016; Chan, Armony, Bambos, 2016): only for a gain above h = c·√(work waiting), a
  margin that grows more slowly than the backlog. Under switching times this, unlike plain max-weight, keeps the
  throughput of the fluid split.

Fewer slots than pools follow the same rules: a slot serves its pool until the work there ends (generalised round robin:
Andradóttir, Ayhan, Down, 2003), which the bound on open groups makes as rare as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.forecast import Forecast, Stage, fluid_split, stages, whole_split
from scheduler.observation import Observation
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.settings import SchedulerSection
from scheduler.worth import Outlook, outlook

SUBLINEAR = 0.5
"""Exponent of the margin; anything between a half and one keeps it below the backlog in the long run."""
ROUNDS = 6
"""Of improving a division, each by several slots from one pool to another."""
HALF_A_SLOT = 0.5
IDLE_SHARE = 0.25
"""Of a pool's slots: it is idle, not merely in step with the pool before it."""
CLOSE = 0.95
"""Throughput of whole slots over that of fractions, from which on slots need not be shared in time."""

Option = tuple[dict[str, int], float, str]
"""A division, the slot-seconds it would gain, and what speaks for it or against any."""


@dataclass(frozen=True, slots=True)
class Pressure:
    horizon_s: float = 300.0
    soon_s: float = 30.0
    """Slots that still have work for so long can be moved later."""
    hysteresis: float = 0.03
    """c of the margin h."""

    def targets(self, observation: Observation, pools: Sequence[Pool]) -> Targets:
        line, slots = stages(observation, pools), observation.usable
        split = filled(line, observation, slots)
        view = outlook(line, observation, slots, self.horizon_s, self.soon_s)
        found = view.of(split)
        numbers = numbers_of(line, slots, found)
        margin = self.margin_s(line, slots) if found.work_by[-1] > 0 else 0.0
        reason = ""
        for better in (self.toward_fluid, *([] if close(line, pools, slots) else [self.away_from_idleness])):
            best, gain, reason = better(view, pools, split, found, slots)
            if best != split and gain > margin:
                told = f"{reason}; {gain:.0f} slot-seconds to gain in {self.horizon_s:.0f} s"
                numbers |= {"gain_s": round(gain, 1), "margin_s": round(margin, 1)}
                return Targets(split=best, reason=told, numbers=numbers)
        return Targets(split=split, reason=reason, numbers=numbers | {"margin_s": round(margin, 1)})

    def toward_fluid(
        self, view: Outlook, pools: Sequence[Pool], split: dict[str, int], found: Forecast, slots: int
    ) -> Option:
        """The fluid split, where every pool fills a slot of its own and the one that should limit does not idle."""
        line = view.line
        if not all(one.measured for one in line) or min(fluid_split(line, slots).values()) < 1:
            return split, 0.0, "slots are shared in time"
        best = whole_split({one.pool.name: one.demand for one in line}, pools, slots)
        limit = min(line, key=lambda one: split[one.pool.name] / one.demand).pool.name
        if best == split:
            return split, 0.0, "as the fluid split"
        if found.soon_idle[limit] >= max(HALF_A_SLOT, IDLE_SHARE * split[limit]):
            return split, 0.0, f"{limit} should limit, and idles"
        gain = view.long_run_s(split, found, best)
        return best, gain, f"{limit} limits: {split[limit]} of {best[limit]} slots"

    def away_from_idleness(
        self, view: Outlook, pools: Sequence[Pool], split: dict[str, int], found: Forecast, slots: int
    ) -> Option:
        """What a forecast shows to be better, once slots are about to run out of work."""
        idle = sum(found.soon_idle.values())
        if idle < HALF_A_SLOT:
            return split, 0.0, f"every slot has work for {self.soon_s:.0f} s"
        best, gain = improved(view, split, found, slots)
        return best, gain, f"{idle:.1f} slots idle{'' if best != split else ', and no move would help'}"

    def margin_s(self, line: Sequence[Stage], slots: int) -> float:
        """h = c·N·H·(work waiting / N·H)^0.5, slot-seconds: for work that fills the horizon, c of all there is."""
        all_s = slots * self.horizon_s
        waiting_s = sum(one.queue * one.service.item_s for one in line)
        return self.hysteresis * all_s * (waiting_s / all_s) ** SUBLINEAR


def close(line: Sequence[Stage], pools: Sequence[Pool], slots: int) -> bool:
    """Whether the fluid split, in whole slots, loses little: known costs, and enough slots for every pool."""
    if not all(one.measured for one in line):
        return False
    fluid, whole = fluid_split(line, slots), whole_split({one.pool.name: one.demand for one in line}, pools, slots)
    return all(whole[name] >= CLOSE * fluid[name] for name in fluid)


def filled(line: Sequence[Stage], observation: Observation, usable: int) -> dict[str, int]:
    """The division as it is, every slot that serves nobody added where the fluid split lacks it most."""
    now = observation.serving()
    split = {stage.pool.name: now.get(stage.pool.name, 0) for stage in line}
    for _ in range(usable - sum(split.values())):
        room = [stage for stage in line if split[stage.pool.name] < stage.pool.most(usable)]
        if not room:
            break
        waiting = [stage for stage in room if stage.queue] if usable < len(line) else room
        neediest = min(
            waiting or room,
            key=lambda one: (split[one.pool.name] >= one.pool.min, split[one.pool.name] / max(one.demand, 1e-12)),
        )
        split[neediest.pool.name] += 1
    return split


def improved(view: Outlook, split: dict[str, int], found: Forecast, slots: int) -> tuple[dict[str, int], float]:
    """The division reached by moves that each bring back more than they cost, and what they gain together. A pool that
    was given slots gives none back, so the search ends."""
    start, at_start, given = split, found, frozenset[str]()
    for _ in range(ROUNDS):
        best, best_gain, best_found, best_target = split, 0.0, found, ""
        for moved, target in options(view, split, found, slots, given):
            then = view.of(moved)
            gain = view.gain_s(split, found, moved, then)
            if gain > best_gain:
                best, best_gain, best_found, best_target = moved, gain, then, target
        if not best_target:
            break
        split, found, given = best, best_found, given | {best_target}
    return split, view.gain_s(start, at_start, split, found) if given else 0.0


def options(
    view: Outlook, split: dict[str, int], found: Forecast, slots: int, given: frozenset[str]
) -> Iterator[tuple[dict[str, int], str]]:
    """(a division a few moves away, the pool that gains): from pools that idle to those that idle less, one slot or as
    many as idle. A pool that has work and was never measured is left to show how fast it is; a pool of
    many slots keeps its share until then: those that come while its first step goes on could take no part in it.
    """
    line = view.line
    fluid = fluid_split(line, slots)
    shared = min(fluid.values()) < 1
    for source in line:
        name, have = source.pool.name, split[source.pool.name]
        kept = 0 if source.measured or shared or source.pool.most(slots) == 1 else int(fluid[name])
        spare, idle = have - max(source.pool.min, kept), have * (1 - found.busy[name])
        enough = view.groups if source is line[-1] else 1
        if spare <= 0 or idle < HALF_A_SLOT or name in given or (not source.measured and source.queue >= enough):
            continue
        for target in line:
            other = target.pool.name
            room = target.pool.most(slots) - split[other]
            if not target.measured:
                room = min(room, 1 - split[other])
            idler = split[other] > 0 and found.busy[other] <= found.busy[name]
            if target is source or room <= 0 or idler:
                continue
            most = min(round(idle), spare, room)
            for count in sorted({1, max(1, most // 2), max(1, most)}):
                yield {**split, name: have - count, other: split[other] + count}, other


def numbers_of(line: Sequence[Stage], slots: int, found: Forecast) -> dict[str, float]:
    """What a person wants to see beside the decision."""
    fluid = fluid_split(line, slots)
    return {
        key: round(value, 3)
        for stage in line
        for name in (stage.pool.name,)
        for key, value in (
            (f"queue.{name}", stage.queue),
            (f"item_s.{name}", stage.service.item_s),
            (f"fluid.{name}", fluid[name]),
            (f"busy.{name}", found.busy[name]),
        )
    }


def make(settings: SchedulerSection) -> Pressure:
    return Pressure(
        horizon_s=settings.horizon_s,
        soon_s=max(2 * settings.every_s, settings.horizon_s / 10),
        hysteresis=settings.hysteresis,
    )
