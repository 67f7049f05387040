"""What becomes of a simulated slot that is told to move: it drains, is killed at its deadline, starts, is ready.

For: moves and what they cost, through the lifecycle table. Not for: which moves (a controller), nor the groups a slot
gives back (`world`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from scheduler.lifecycle import Event, State, after
from scheduler.planner import Move
from scheduler.simulation.shared_slot import SharedSlot

if TYPE_CHECKING:
    from scheduler.simulation.world import World


class Moves:
    """All moves of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.count = 0
        self.recent: deque[float] = deque(maxlen=100_000)
        """When those were ordered whose slot had something to do."""
        self.moving_s = 0.0
        """Slot-seconds from the order until a slot could work, work done meanwhile left out."""
        self.lost_s = 0.0
        """Slot-seconds of useful work that moves cost: of slots that had something to do, and work thrown away."""

    def order(self, move: Move) -> None:
        """A command reaches a slot."""
        slot = self.world.slots[move.slot]
        self.world.count_work(slot)
        slot.epoch, slot.since, slot.moving_since = move.epoch, self.world.now, self.world.now
        slot.useful_before = slot.useful_s
        if move.source:
            self.count += 1
            if not move.idle:
                self.recent.append(self.world.now)
        slot.moves_idle = move.idle or not move.source
        before, slot.state = slot.state, after(slot.state, Event.ASSIGNED)
        slot.bound_for, slot.drain_by = move.target, move.drain_by
        if before is State.SERVING:
            if self.world.controller.moves_are_free and slot.pool in self.world.pools:
                self.hand_over(slot)
            if self.world.is_empty(slot):
                self.left(slot, Event.LEFT)
            elif slot.pool in self.world.pools:
                self.world.agenda.add(move.drain_by, "deadline", slot.id, slot.epoch)
        else:
            self.move(slot)

    def on_deadline(self, name: str, epoch: int) -> None:
        slot = self.world.slots[name]
        if slot.state is State.DRAINING and slot.epoch == epoch:
            self.lost_s += self.world.release(slot)
            self.left(slot, Event.OVERRAN)

    def hand_over(self, slot: SharedSlot) -> None:
        """What it holds goes on elsewhere, nothing lost."""
        for group, left in slot.give_back(self.world.now):
            rollout, judge, train, survives = self.world.work[group]
            self.world.work[group] = (
                (left, judge, train, survives) if slot.pool == "rollout" else (rollout, left, train, survives)
            )
            self.world.pools[slot.pool].waiting.appendleft(group)
        slot.state = State.DRAINING
        self.world.serve(slot.pool)

    def left(self, slot: SharedSlot, how: Event) -> None:
        """It has left its pool: load for the next one."""
        self.world.count_work(slot)
        if slot.pool in self.world.pools:
            self.count_moving(slot, self.world.now - slot.moving_since - (slot.useful_s - slot.useful_before))
        slot.moving_since = self.world.now
        self.world.settle_work(slot)
        slot.state = after(slot.state, how)
        self.world.gang.members.pop(slot.id, None)
        self.move(slot)

    def count_moving(self, slot: SharedSlot, seconds: float) -> None:
        self.moving_s += seconds
        if not slot.moves_idle:
            self.lost_s += seconds

    def move(self, slot: SharedSlot) -> None:
        target = slot.bound_for
        slot.pool, slot.bound_for, slot.at = target, "", self.world.now
        slot.enter(target, self.world.load.shapes[target])
        takes = 0.0 if self.world.controller.moves_are_free else self.world.load.shapes[target].move_s
        self.world.agenda.add(self.world.now + takes, "ready", slot.id, slot.epoch)

    def on_ready(self, name: str, epoch: int) -> None:
        slot = self.world.slots[name]
        if slot.state is not State.MOVING or slot.epoch != epoch:
            return
        slot.state, slot.at = after(slot.state, Event.READY), self.world.now
        self.count_moving(slot, self.world.now - slot.moving_since)
        slot.moving_since = self.world.now
        if slot.pool in self.world.pools:
            self.world.pools[slot.pool].offer(slot)
            self.world.serve(slot.pool)
        elif not self.world.gang.batch:
            self.world.regroup()
            self.world.maybe_train()
