"""From where slots should be to the moves that are safe now: the one place that owns safety.

For: a decision, pure. Not for: where slots should be (`placements`), doing it (`slots`), or staleness: admission alone
keeps that bound, so nothing decided here can break it.

Each move by itself, and so every prefix of a plan, keeps: no pool under its min by a move, no pool over its max (a slot
that still drains counts where it is and where it goes), no slot moved within its dwell, at most one move of a slot at a
time, none of a pinned slot, none that costs more than it gains, and no more moving than a share of all slots' time. A
slot with unsettled work is given a drain deadline; until it has drained or the deadline has passed it is left alone.
Lost capacity: m moves in a window W cost at most m·move_s/(N·W) ≤ `switching`.

A slot that has nothing to do (`idleness`) loses nothing by moving: neither its dwell nor the share of time holds it, if
what waits where it goes fills more than the move takes. So each such move is followed by at least as much work, and
none takes a slot from work: a slot moves back and forth no more often than once in two `move_s`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from scheduler.forecast import stages
from scheduler.idleness import Idleness
from scheduler.leaving import Leaving
from scheduler.legal_split import legal
from scheduler.lifecycle import WORKING, State
from scheduler.observation import Observation, Slot
from scheduler.placements.base import Targets
from scheduler.pools import Pool
from scheduler.worth import move_s, outlook

WINDOW_S = 1800.0
"""The share of time spent moving is counted over so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """See `[scheduler]`."""

    horizon_s: float = 300.0
    dwell_s: float = 30.0
    switching: float = 0.02
    drain_s: float = 60.0

    @classmethod
    def of(cls, settings: object) -> Rules:
        """Those of a `SchedulerSection`, which is no pure module's to import."""
        return cls(**{rule.name: getattr(settings, rule.name) for rule in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One command to one slot."""

    slot: str
    source: str
    """Empty for a slot that served nobody."""
    target: str
    epoch: int
    """Higher than that of the record the slot obeys."""
    drain_by: float
    """When what the slot then still holds is taken from it, seconds; now for one that holds nothing."""
    idle: bool = False
    """It had nothing to do: no time is lost, and the move counts against none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done, or that nothing is, with the numbers it stands on."""

    at: float
    moves: tuple[Move, ...]
    sentence: str
    split: Mapping[str, int]
    """Pool → slots it had."""
    wanted: Mapping[str, int]
    """Pool → slots it should have, legal."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def stays(self) -> bool:
        return not self.moves


def plan(observation: Observation, pools: Sequence[Pool], targets: Targets, rules: Rules) -> Decision:
    """The moves that are safe now on the way to `targets`; a decision also when there are none."""
    fleet = Fleet(observation, pools, rules)
    split = dict(fleet.belong)
    wanted = legal(targets.split, pools, observation.usable, split)
    moves = [*fleet.employ(wanted), *fleet.repair(wanted)]
    numbers, held_back = dict(targets.numbers), ""
    if any(fleet.lacking(wanted)):
        gain = worth(observation, pools, fleet.belong, wanted, rules)
        numbers["gain_s"] = round(gain, 1)
        if targets.insists or gain > 0:
            more = fleet.shift(wanted)
            held_back = "" if more else fleet.why_not(wanted)
            moves += more
        else:
            held_back = f"moving would cost {-gain:.0f} slot-seconds more than it gains ({targets.reason})"
    return Decision(
        at=observation.now,
        moves=tuple(moves),
        sentence=sentence(moves, targets.reason, held_back),
        split=split,
        wanted=wanted,
        numbers=numbers,
    )


def worth(
    observation: Observation, pools: Sequence[Pool], split: Mapping[str, int], wanted: Mapping[str, int], rules: Rules
) -> float:
    """Slot-seconds of useful work to be gained within the horizon, what moving costs taken off."""
    view = outlook(stages(observation, pools), observation, observation.usable, rules.horizon_s, rules.dwell_s)
    return view.gain_s(split, view.of(split), wanted, view.of(wanted))


class Fleet:
    """The slots while a plan is made: each move that is chosen changes the counts the next is checked against."""

    def __init__(self, observation: Observation, pools: Sequence[Pool], rules: Rules) -> None:
        self.observation = observation
        self.pools = {pool.name: pool for pool in pools}
        self.rules = rules
        self.belong: Counter[str] = Counter({pool.name: 0 for pool in pools})
        self.present: Counter[str] = Counter()
        """Slots in the pool or on their way there or out of it: what its max is held against."""
        self.arriving: Counter[str] = Counter()
        """Slots on their way to the pool."""
        self.serving: Counter[str] = Counter()
        """Slots that work for the pool now: what its min is held against when one is to leave."""
        self.vacant: list[Slot] = []
        self.gone: set[str] = set()
        """Slots that this plan moves."""
        for slot in observation.slots:
            self.count(slot)

    @cached_property
    def idleness(self) -> Idleness:
        return Idleness(self.observation, stages(self.observation, [*self.pools.values()]))

    @cached_property
    def rested(self) -> Leaving:
        """Slots that have stayed long enough; made when first needed, since most plans are to stay."""
        now, dwell_s = self.observation.now, self.rules.dwell_s
        return Leaving(self.observation.slots, self.pools, lambda slot: now - slot.since >= dwell_s)

    @cached_property
    def idle(self) -> Leaving:
        """Slots that have nothing to do, rested or not."""
        return Leaving(self.observation.slots, self.pools, self.idleness.idles)

    def count(self, slot: Slot) -> None:
        if slot.state is State.VACANT:
            if not slot.pinned:
                self.vacant.append(slot)
            return
        if slot.state not in WORKING:
            return
        belongs = slot.belongs
        self.present[slot.pool] += 1
        if slot.state is State.DRAINING:
            self.present[slot.bound_for] += 1
        if slot.state is not State.SERVING:
            self.arriving[belongs] += 1
        self.belong[belongs] += 1
        if slot.state is State.SERVING:
            self.serving[slot.pool] += 1

    def lacking(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Pool → slots it lacks, those that may have more first come first."""
        return {name: lack for name in wanted if (lack := wanted[name] - self.belong[name]) > 0}

    def employ(self, wanted: Mapping[str, int]) -> list[Move]:
        """Give slots that serve nobody to the pools that lack most; that costs no pool anything."""
        moves: list[Move] = []
        for slot in self.vacant:
            open_to_more = {name: lack for name, lack in self.lacking(wanted).items() if self.takes(name)}
            if not open_to_more:
                break
            name = max(open_to_more, key=lambda one: (self.belong[one] < self.pools[one].min, open_to_more[one]))
            moves.append(self.moved(slot, "", name))
        return moves

    def repair(self, wanted: Mapping[str, int]) -> list[Move]:
        """Bring pools back to their min (a slot died, a run began), whatever that costs."""
        moves: list[Move] = []
        for pool in self.pools.values():
            while self.belong[pool.name] < min(pool.min, wanted[pool.name]) and self.takes(pool.name):
                move = self.free_move(pool.name, wanted) or self.paid_move(pool.name, wanted)
                if move is None:
                    break
                moves.append(move)
        return moves

    def shift(self, wanted: Mapping[str, int]) -> list[Move]:
        """Move slots from pools that have more than wanted to those that have less, as far as is safe and paid for."""
        moves: list[Move] = []
        allowed = self.allowance()
        for name, lack in self.lacking(wanted).items():
            for _ in range(lack):
                if not self.takes(name):
                    break
                move = self.free_move(name, wanted) or (self.paid_move(name, wanted) if allowed > 0 else None)
                if move is None:
                    break
                moves.append(move)
                allowed -= not move.idle
        return moves

    def surplus(self, wanted: Mapping[str, int]) -> list[str]:
        """Pools that have more than wanted, those with most to spare first."""
        over = {name: have - wanted.get(name, 0) for name, have in self.belong.items()}
        return sorted((name for name in over if over[name] > 0), key=lambda one: -over[one])

    def free_move(self, target: str, wanted: Mapping[str, int]) -> Move | None:
        """A slot that has nothing to do where it is, and will have there."""
        if not self.idleness.fills(target, self.present[target] + 1):
            return None
        for source in self.surplus(wanted):
            slot = self.idle.first(source, self.gone) if self.serving[source] > self.pools[source].min else None
            if slot is not None:
                return self.moved(slot, source, target, idle=True)
        return None

    def paid_move(self, target: str, wanted: Mapping[str, int]) -> Move | None:
        """The best slot for `target` out of the pools that have more than wanted; None when none may leave."""
        for source in self.surplus(wanted):
            slot = self.rested.first(source, self.gone) if self.gives(source) else None
            if slot is not None:
                return self.moved(slot, source, target)
        return None

    def gives(self, name: str) -> bool:
        """Whether a slot may leave: the min stays met by slots that work, and none is still on its way there. What a
        pool was given a moment ago must show its effect before it is taken away again."""
        return self.serving[name] > self.pools[name].min and not self.arriving[name]

    def takes(self, name: str) -> bool:
        """Whether one more slot keeps the pool inside its max, also while others are still leaving it."""
        most = self.pools[name].max
        return most is None or self.present[name] < most

    def moved(self, slot: Slot, source: str, target: str, *, idle: bool = False) -> Move:
        now = self.observation.now
        self.gone.add(slot.id)
        self.belong[target] += 1
        self.present[target] += 1
        self.arriving[target] += 1
        if source:
            self.belong[source] -= 1
            self.serving[source] -= 1
            if not slot.holds:
                self.present[source] -= 1
        drain_by = now + self.rules.drain_s if source and slot.holds else now
        return Move(slot=slot.id, source=source, target=target, epoch=slot.epoch + 1, drain_by=drain_by, idle=idle)

    def allowance(self) -> int:
        """Moves that may be ordered now. A fleet too small for its share of time moves one slot per dwell."""
        seen, now = self.observation, self.observation.now
        dearest = max((move_s(pool, seen.service.get(name)) for name, pool in self.pools.items()), default=0.0)
        if dearest <= 0:
            return len(seen.slots)
        recent = [at for at in seen.moves if at > now - WINDOW_S]
        left = int(self.rules.switching * seen.usable * WINDOW_S / dearest) - len(recent)
        small = self.rules.switching * seen.usable * self.rules.dwell_s < dearest
        rested = not recent or now - recent[-1] >= self.rules.dwell_s
        return max(left, 1 if small and rested else 0)

    def why_not(self, wanted: Mapping[str, int]) -> str:
        """Why nothing was moved although slots are wanted elsewhere."""
        if self.allowance() <= 0:
            return f"{self.rules.switching:.0%} of all slots' time has gone into moves already"
        full = [name for name in self.lacking(wanted) if not self.takes(name)]
        if full:
            return f"a slot must first leave {' and '.join(full)}"
        busy = [name for name in self.pools if self.belong[name] > wanted[name] and self.arriving[name]]
        if busy:
            return f"slots are still on their way to {' and '.join(busy)}"
        return f"every slot that could leave is pinned, moving, or has not stayed {self.rules.dwell_s:g} s yet"


def sentence(moves: Sequence[Move], reason: str, held_back: str) -> str:
    """One sentence that tells the decision to a person."""
    if not moves:
        return f"stay: {held_back or reason}"
    ways = Counter((move.source or "vacant", move.target) for move in moves)
    told = ", ".join(f"{count} {source} → {target}" for (source, target), count in ways.items())
    return f"move {told}: {reason}"
