"""Synchronous co-location: all slots generate a batch, then all judge it, then all train on it.

For: the usual way, as a baseline on the same groups. Not for: slots and pools; there are none. Every slot is switched
between the three roles (engine put to sleep and woken, weights handed over), which takes `switch_s` each time. Groups
are dealt to slots one by one; a phase ends with its slowest slot, which is what a long tail costs. With dynamic
sampling a batch is filled up in waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from scheduler.observation import Service
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.scaling import gang_speed
from scheduler.simulation.workload import Cargo

SWITCHES = 3


def colocated(cargo: Cargo) -> Outcome:
    """Play the whole run."""
    load, slots, groups = cargo.workload, cargo.slots, cargo.workload.groups(cargo.slots)
    now, warm_s, number, useful = 0.0, 0.0, 0, {"rollout": 0.0, "judge": 0.0, "train": 0.0}
    for version in range(load.versions):
        warm_s = now if version == load.versions // 5 else warm_s
        train_s, kept = 0.0, 0
        while kept < groups:
            wave = [cargo.group(number + one) for one in range(wanted(groups - kept, cargo.means[version][0]))]
            number += len(wave)
            for place, pool in enumerate(("rollout", "judge")):
                work = [group[place] for group in wave]
                now += phase_s(work, slots, load.shapes[pool])
                useful[pool] += sum(work)
            survivors = [group[2] for group in wave if group[3]][: groups - kept]
            kept += len(survivors)
            train_s += sum(survivors)
            now += load.switch_s * (SWITCHES - 1)
        now += train_s / gang_speed(slots, load.scaling) + load.step_s + load.switch_s
        useful["train"] += train_s
    moving_s = slots * load.versions * SWITCHES * load.switch_s
    return Outcome(
        system="synchronous co-location",
        seconds=now,
        trained=groups * load.versions,
        slots=slots,
        useful_s=useful,
        moves=0,
        moving_s=moving_s,
        lost_s=moving_s,
        staleness_mean=0.0,
        staleness_max=0,
        warm_s=warm_s,
    )


def wanted(missing: int, surviving: float) -> int:
    """Groups to sample so that about `missing` survive, a fifth more where some are lost."""
    return missing if surviving >= 1 else max(1, round(1.2 * missing / surviving))


def phase_s(work: Sequence[float], slots: int, shape: Service) -> float:
    """Until the last slot is done, groups dealt round the slots, each slot sharing its speed among those it holds."""
    return max(slot_s(work[first::slots], shape) for first in range(min(slots, len(work))))


def slot_s(work: Sequence[float], shape: Service) -> float:
    """One slot's time for these groups: as many at once as it has places, the next when one is done."""
    places = int(shape.places)
    held = list(work[:places])
    heapify(held)
    waiting = list(work[places:])
    now = progress = 0.0
    while held:
        now += (held[0] - progress) * len(held) / shape.speed(len(held))
        progress = held[0]
        if waiting:
            heapreplace(held, progress + waiting.pop())
        else:
            heappop(held)
    return now
