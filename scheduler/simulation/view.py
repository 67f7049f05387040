"""A simulated fleet as others see it: the slots as supervisors report them, and a run's course for a picture.

For: reading a `World`. Not for: changing it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.streams import PROMPTS, ROLLOUTS, SCORED
from scheduler.lifecycle import State
from scheduler.observation import Slot
from scheduler.simulation.outcome import Outcome

if TYPE_CHECKING:
    from scheduler.simulation.world import World

STREAM = {"rollout": PROMPTS, "judge": ROLLOUTS, "train": SCORED}


def reported(world: World) -> tuple[Slot, ...]:
    """All slots, with counters up to now."""
    training = world.gang.members if world.gang.batch else {}
    return tuple(
        [
            Slot(
                id=slot.id,
                pool=slot.pool,
                state=slot.state,
                since=slot.since,
                bound_for=slot.bound_for,
                drain_by=slot.drain_by,
                busy_s=slot.busy_s,
                spent_s=slot.spent_s,
                items=slot.items,
                holds=bool(slot.jobs) or slot.id in training,
                epoch=slot.epoch,
            )
            for slot in world.slots.values()
        ]
    )


def moment(world: World) -> dict[str, float]:
    """One point of a course."""
    here = Counter(slot.pool for slot in world.slots.values() if slot.state is State.SERVING)
    facts: dict[str, float] = {
        "seconds": world.now,
        "version": world.version,
        "staleness": world.stale_sum / max(1, world.trained),
    }
    for pool, stream in STREAM.items():
        facts[f"slots.{pool}"] = here[pool]
        facts[f"backlog.{pool}"] = world.backlog[stream]
        running = sum(slot.useful_s for slot in world.slots.values() if slot.pool == pool)
        facts[f"useful_s.{pool}"] = world.useful_s[pool] + running
    facts["useful_s.train"] += training_s(world)
    return facts


def training_s(world: World) -> float:
    """Slot-seconds that the step in training has done so far; booked when it ends."""
    gang = world.gang
    return min(sum(world.work[group][2] for group in gang.batch), (world.now - gang.began) * gang.speed)


def outcome_of(world: World) -> Outcome:
    """What the run came to, all work booked."""
    return Outcome(
        system=world.controller.name,
        seconds=world.now,
        trained=world.trained,
        slots=len(world.slots),
        useful_s=dict(world.useful_s),
        moves=world.moves.count,
        moving_s=world.moves.moving_s,
        lost_s=world.moves.lost_s,
        staleness_mean=world.stale_sum / max(1, world.trained),
        staleness_max=world.stale_max,
        warm_s=world.warm_s,
        course=world.course or {},
    )
