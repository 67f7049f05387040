"""The simulated fleet and run: groups flow, slots work, move and fail, versions are trained.

For: what happens when. Not for: where slots should be (a `Controller`), nor what groups cost (`workload`).

Real: the admission cap and the rank rule (`broker.admission`), oldest-first batches, the lifecycle table, exact
backlogs, and whatever the controller calls. Approximate: a group's siblings are one job as long as their sum asks for;
work goes to the slot with fewest groups in hand; the train pool is one gang whose step takes the batch's seconds over
its speed, and which slots join and leave between steps; weights reach a producer at once; a group given back loses
what was generated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from broker.admission import cap
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from scheduler.lifecycle import Event, State, after
from scheduler.planner import Move
from scheduler.simulation.agenda import Agenda
from scheduler.simulation.gang import Gang
from scheduler.simulation.moves import Moves
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.shared_pool import SharedPool
from scheduler.simulation.shared_slot import SharedSlot
from scheduler.simulation.view import STREAM, moment, outcome_of
from scheduler.simulation.workload import Cargo, Group

TRAIN = "train"
SHARED = ("rollout", "judge")
PLACE = {pool: place for place, pool in enumerate(SHARED)}
"""Of a pool's seconds in a group."""
STUCK_S = 24 * 3600.0
"""A version that takes so long never ends."""


class Controller(Protocol):
    """Who moves slots in a simulated fleet."""

    name: str
    every_s: float
    moves_are_free: bool
    """Moves take no time and lose no work: nothing real, a bound."""

    def decide(self, world: World) -> Iterable[Move]:
        """The moves to order now."""
        ...


class World:
    """One run until its last version."""

    def __init__(self, cargo: Cargo, controller: Controller, *, records: bool = False) -> None:
        self.load, self.cargo, self.controller = cargo.workload, cargo, controller
        self.groups = self.load.groups(cargo.slots)
        self.cap = cap(self.groups, self.load.staleness)
        self.slots = {f"slot{number}": SharedSlot(f"slot{number}") for number in range(cargo.slots)}
        self.now = 0.0
        self.agenda = Agenda()
        self.version = self.admitted = 0
        self.advanced_at = self.warm_s = 0.0
        self.last: dict[int, int] = {}
        """Open group → its last version."""
        self.sampled_by: dict[int, int] = {}
        self.work: dict[int, Group] = {}
        """Open group → what it still asks for."""
        self.retired = 0
        self.pools = {name: SharedPool(name) for name in SHARED}
        self.backlog: Counter[str] = Counter({PROMPTS: 0, ROLLOUTS: 0, SCORED: 0})
        self.gang = Gang(self.groups, self.load.step_s, self.load.scaling)
        self.useful_s: dict[str, float] = {TRAIN: 0.0, **dict.fromkeys(SHARED, 0.0)}
        self.moves = Moves(self)
        self.stale_sum = self.stale_max = self.trained = 0
        self.course: dict[str, list[float]] | None = {} if records else None
        self.chance = np.random.default_rng(cargo.seed + 1_000_003)

    # ------------------------------------------------------------------------------------------------ time

    def run(self) -> Outcome:
        """Play it to the end. Raises AssertionError when a version never ends or the bound is broken."""
        happens = {
            "tick": self.on_tick,
            "done": self.on_done,
            "step": self.on_step,
            "deadline": self.moves.on_deadline,
            "ready": self.moves.on_ready,
            "lost": self.on_lost,
            "heard": self.on_heard,
        }
        self.agenda.add(0.0, "tick")
        self.plan_failures()
        self.admit()
        while self.version < self.load.versions:
            self.now, _, kind, name, stamp = self.agenda.next()
            assert self.now - self.advanced_at < STUCK_S, f"version {self.version} lasts since {self.advanced_at:.0f} s"
            happens[kind](name, stamp)
        for slot in self.slots.values():
            self.settle_work(slot)
        return outcome_of(self)

    def on_tick(self, _name: str, _stamp: int) -> None:
        self.count_all_work()
        for move in self.controller.decide(self):
            self.moves.order(move)
        if self.course is not None:
            for fact, value in moment(self).items():
                self.course.setdefault(fact, []).append(value)
        self.agenda.add(self.now + self.controller.every_s, "tick")

    # ------------------------------------------------------------------------------------------------ groups

    def admit(self) -> None:
        while len(self.last) < self.cap:
            number, self.admitted = self.admitted, self.admitted + 1
            self.work[number] = self.cargo.group(number)
            self.last[number] = last = self.version + self.load.staleness
            self.gang.opened(last)
            self.put("rollout", number)

    def put(self, pool: str, group: int) -> None:
        self.backlog[STREAM[pool]] += 1
        self.pools[pool].waiting.append(group)
        self.serve(pool)

    def serve(self, pool: str) -> None:
        """Give waiting groups to the slots with most room."""
        shared, place = self.pools[pool], PLACE[pool]
        while pair := shared.next_pair():
            group, slot = pair
            if pool == "rollout":
                self.sampled_by[group] = self.version
            done = slot.take(group, self.work[group][place], self.now)
            self.agenda.add(done, "done", slot.id, slot.stamp)
            shared.offer(slot)

    def on_done(self, name: str, stamp: int) -> None:
        slot = self.slots[name]
        if slot.stamp != stamp:
            return
        pool = slot.pool
        group = slot.finish(self.now)
        self.backlog[STREAM[pool]] -= 1
        self.pools[pool].offer(slot)
        if pool == "rollout":
            self.put("judge", group)
        elif self.work[group][3]:
            self.backlog[SCORED] += 1
            self.gang.scored(group, self.last[group])
            self.maybe_train()
        else:
            self.retired += 1
            self.close(group)
            self.admit()
            self.maybe_train()
        self.serve(pool)
        if slot.jobs and slot.stamp == stamp:
            self.agenda.add(slot.next_done(), "done", name, slot.stamp)
        elif slot.state is State.DRAINING and not slot.jobs:
            self.moves.left(slot, Event.LEFT)

    def release(self, slot: SharedSlot) -> float:
        """What it holds goes back to its stream, to be done again; slot-seconds of work thrown away."""
        pool, place, thrown_s = slot.pool, PLACE[slot.pool], 0.0
        for group, left in reversed(slot.give_back(self.now)):
            self.pools[pool].waiting.appendleft(group)
            thrown_s += self.work[group][place] - left
        slot.useful_s -= thrown_s
        self.serve(pool)
        return thrown_s

    def close(self, group: int) -> None:
        self.gang.closed(self.last[group])
        del self.last[group], self.work[group], self.sampled_by[group]

    # ------------------------------------------------------------------------------------------------ training

    def maybe_train(self) -> None:
        if self.gang.takes_batch(self.version):
            work = sum(self.work[group][2] for group in self.gang.batch)
            self.agenda.add(self.gang.begin(work, self.now), "step", "", self.gang.stamp)

    def on_step(self, _name: str, stamp: int) -> None:
        if stamp != self.gang.stamp:
            return
        self.credit()
        for group in self.gang.end():
            stale = self.version - self.sampled_by[group]
            assert stale <= self.load.staleness, f"group {group} trained {stale} versions late"
            self.stale_sum += stale
            self.stale_max = max(self.stale_max, stale)
            self.close(group)
        self.trained += self.groups
        self.backlog[SCORED] -= self.groups
        self.version += 1
        self.advanced_at = self.now
        if self.version == self.load.versions // 5:
            self.warm_s = self.now
        if self.version < self.load.versions:
            self.regroup()
            self.admit()
            self.maybe_train()

    def credit(self) -> None:
        """Book a step for its members; one that stays is given its groups, as the trainer of rank 0 reports them."""
        self.useful_s[TRAIN] += sum(self.work[group][2] for group in self.gang.batch)
        members = [self.slots[name] for name in self.gang.members]
        for slot in members:
            self.count_work(slot)
        leader = next((slot for slot in members if slot.state is State.SERVING), members[0])
        leader.items += self.groups
        leader.spent_s += (self.now - self.gang.began) * len(members)

    def regroup(self) -> None:
        """Between two steps members leave and join."""
        for name in [name for name in self.gang.members if self.slots[name].state is State.DRAINING]:
            self.moves.left(self.slots[name], Event.LEFT)
        for slot in self.slots.values():
            if slot.pool == TRAIN and slot.state is State.SERVING and slot.id not in self.gang.members:
                self.moves.count_moving(slot, self.now - slot.moving_since)
                self.gang.members[slot.id] = None

    # ------------------------------------------------------------------------------------------------ slots

    def count_all_work(self) -> None:
        for slot in self.slots.values():
            if slot.jobs:
                slot.advance(self.now)
        if self.gang.batch:
            for name in self.gang.members:
                self.count_work(self.slots[name])

    def count_work(self, slot: SharedSlot) -> None:
        """Bring a slot's counters up to now."""
        if self.trains(slot):
            slot.busy_s += self.now - max(slot.at, self.gang.began)
            slot.at = self.now
        else:
            slot.advance(self.now)

    def is_empty(self, slot: SharedSlot) -> bool:
        return not slot.jobs and not self.trains(slot)

    def trains(self, slot: SharedSlot) -> bool:
        return bool(self.gang.batch) and slot.id in self.gang.members

    def settle_work(self, slot: SharedSlot) -> None:
        """Book what it did for the pool it leaves."""
        self.count_work(slot)
        if slot.pool in SHARED:
            self.useful_s[slot.pool] += slot.useful_s
        slot.useful_s = 0.0

    # ------------------------------------------------------------------------------------------------ failures

    def plan_failures(self) -> None:
        if self.load.failures_per_slot_hour:
            for name in self.slots:
                self.agenda.add(self.next_failure(), "lost", name)

    def next_failure(self) -> float:
        per_hour = self.load.failures_per_slot_hour
        return self.now + 3600 / per_hour * float(self.chance.exponential())

    def on_lost(self, name: str, _stamp: int) -> None:
        """Its worker dies: others take over what it held, and a training step it was part of begins anew."""
        slot = self.slots[name]
        self.settle_work(slot)
        slot.state = after(slot.state, Event.LOST)
        if slot.pool in SHARED:
            self.release(slot)
        if name in self.gang.members:
            del self.gang.members[name]
            self.gang.abandon(self.last)
            self.regroup()
            self.maybe_train()
        self.agenda.add(self.now + self.load.repair_s, "heard", name)

    def on_heard(self, name: str, _stamp: int) -> None:
        slot = self.slots[name]
        slot.state, slot.at = after(slot.state, Event.HEARD), self.now
        self.agenda.add(self.next_failure(), "lost", name)
