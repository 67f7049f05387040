"""True service rates, from what slots have done: busy seconds per group, moving averages, seconds a move costs.

For: turning two observations' counters into rates (DS2, OSDI'18: rate = items / *useful* time; queue sizes or
utilisation alone oscillate). Not for: what to do with them (`placements`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.lifecycle import State
from scheduler.observation import Service, Slot

MEMORY_S = 120.0
"""After so long a measurement weighs 1/e."""
LONG = 8.0
"""The long mean remembers so many times longer."""
TREND = 1.0
"""A mean over the last `memory_s` is about as old. So much of the way that a cost went since a mean twice as old is led
on."""
STEEPEST = 2.0
"""Most a trend may add or take, as a factor: the rest is taken for noise."""
DOUBT = 6.0
"""A change of so many standard errors is half believed."""
SHARP = 4
"""How quickly belief grows around it: as this power."""
STILL_S = 10.0
"""A pool whose slots did nothing for longer stands still; shorter pauses lie between two reports or two steps."""
MEMORY_MOVES = 5.0
"""A pool's move cost is a mean over about so many moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Decayed sums of one pool."""

    spent_s: float = 0.0
    items: float = 0.0
    begun_s: float = 0.0
    """Busy seconds since a group was last finished: a training step takes long and ends many at once."""
    waiting_s: float = 0.0
    """What was spent and not counted yet."""
    at: float = 0.0
    """When a group was last finished."""
    last_s: float = 0.0
    """Of the last look's groups, each, the mean."""
    last_items: int = 0
    squares: float = 0.0
    """Of how much one look's mean differed from the next one's, in variances of a group: a leap counts once."""
    looks: float = 0.0

    @property
    def item_s(self) -> float | None:
        return self.spent_s / self.items if self.items > 0 else None

    @property
    def error_s(self) -> float:
        """Standard error of `item_s`, by how the looks at it differed; what decays by 1/e in so many groups is a mean
        of twice as many."""
        return math.sqrt(self.squares / self.looks / (2 * self.items)) if self.looks > 0 else math.inf

    def with_work(self, busy_s: float, spent_s: float, items: int, now: float, memory_s: float) -> Mean:
        """So many seconds and finished groups later."""
        waiting = self.waiting_s + spent_s
        if items == 0:
            return replace(self, begun_s=self.begun_s + busy_s, waiting_s=waiting)
        keep = math.exp((self.at - now) / memory_s)
        mean_s = waiting / items
        both = items * self.last_items / (items + self.last_items)
        return Mean(
            spent_s=self.spent_s * keep + waiting,
            items=self.items * keep + items,
            at=now,
            last_s=mean_s,
            last_items=items,
            squares=self.squares * keep + both * (mean_s - self.last_s) ** 2,
            looks=self.looks * keep + (self.last_items > 0),
        )


@dataclass(slots=True)
class Done:
    """Of one pool, between two looks."""

    busy_s: float = 0.0
    spent_s: float = 0.0
    items: int = 0
    serving: int = 0
    """Slots that served it at both."""


@dataclass(slots=True)
class Rates:
    """Rates of every pool, brought up to date by each look at the slots.

    A group counts with what it took itself once it is finished. Busy seconds over finished groups would count slots
    that have just come as slow ones: they are busy at once and finish their first groups later.

    >>> rates = Rates({"rollout": Service(item_s=0.0, places=8, half_at=1)})
    >>> rates.observe(slots, now)
    >>> rates.service()["rollout"].item_s
    """

    shapes: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """Pool → places and half_at of its slots; what it says about seconds is not used, but for `move_s` until a move was
    seen."""
    memory_s: float = MEMORY_S
    means: dict[str, Mean] = field(default_factory=dict[str, Mean])
    older: dict[str, Mean] = field(default_factory=dict[str, Mean])
    """The same with twice the memory."""
    steady: dict[str, Mean] = field(default_factory=dict[str, Mean])
    """The same with `LONG` times the memory."""
    move_s: dict[str, float] = field(default_factory=dict[str, float])
    before: dict[str, Slot] = field(default_factory=dict[str, Slot])
    still_since: dict[str, float] = field(default_factory=dict[str, float])
    """Pool → since which look none of the slots that serve it did anything."""

    def observe(self, slots: Sequence[Slot], now: float) -> None:
        """Count what every slot did since the last look."""
        done: dict[str, Done] = {}
        for slot in slots:
            known = self.before.get(slot.id)
            if known is not None and known.pool == slot.pool and slot.busy_s >= known.busy_s:
                busy = slot.busy_s - known.busy_s
                both = slot.spent_s is not None and known.spent_s is not None
                work = done.setdefault(slot.pool, Done())
                work.busy_s += busy
                work.spent_s += (slot.spent_s or 0.0) - (known.spent_s or 0.0) if both else busy
                work.items += slot.items - known.items
                work.serving += slot.state is State.SERVING and known.state is State.SERVING
        still = [pool for pool, work in done.items() if work.serving and not work.busy_s]
        self.still_since = {pool: self.still_since.get(pool, now) for pool in still}
        for pool, work in done.items():
            for means, times in ((self.means, 1.0), (self.older, 2.0), (self.steady, LONG)):
                mean, memory_s = means.get(pool, Mean()), times * self.memory_s
                means[pool] = mean.with_work(work.busy_s, work.spent_s, work.items, now, memory_s)
        self.before = {slot.id: slot for slot in slots}

    def still(self, now: float) -> frozenset[str]:
        """Pools that have slots which did nothing for a while."""
        return frozenset(pool for pool, since in self.still_since.items() if now - since >= STILL_S)

    def note_move(self, pool: str, seconds: float) -> None:
        """A slot that moved to `pool` took so long from the end of its drain until it could work."""
        known = self.move_s.get(pool)
        self.move_s[pool] = seconds if known is None else known + (seconds - known) / MEMORY_MOVES

    def item_s(self, pool: str) -> float | None:
        """Seconds per group now; None before anything was finished.

        A short memory follows what changes, led on along its trend, and is noisy; a long one is steady and late. The
        short one is believed as far as it is off by more than its noise explains: d⁴/(d⁴ + (`DOUBT`·error)⁴).
        """
        short, older, steady = (means[pool].item_s for means in (self.means, self.older, self.steady))
        if not short or not older or not steady:
            return short
        led = short * min(STEEPEST, max(1 / STEEPEST, (short / older) ** TREND))
        change, noise = (led - steady) ** SHARP, (DOUBT * self.means[pool].error_s) ** SHARP
        return steady + (led - steady) * (change / (change + noise) if change else 0.0)

    def service(self) -> dict[str, Service]:
        """Every pool that has finished something, as measured."""
        found: dict[str, Service] = {}
        for pool, mean in self.means.items():
            item_s = self.item_s(pool)
            if item_s is not None:
                shape = self.shapes.get(pool, Service(item_s=0.0))
                move_s = self.move_s.get(pool, shape.move_s)
                found[pool] = replace(shape, item_s=item_s, begun_s=mean.begun_s, move_s=move_s)
        return found
