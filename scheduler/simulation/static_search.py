"""The best division that never changes, found knowing the whole run.

For: the strongest static baseline. Not for: anything one could know beforehand. All divisions are ranked by an estimate
(each version takes as long as its most loaded pool: Σ_v max_s W_s(v)/n_s, n^β for the gang that trains), the best of
them are simulated, and then neighbours of the best, one slot moved, until none is better. Past `ALL` slots only
divisions around the fluid split are ranked: they are too many, and the estimate is convex; and neighbours are no closer
than `FINEST` of all slots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler.simulation.controllers import static
from scheduler.simulation.scaling import fluid_slots
from scheduler.simulation.workload import Cargo
from scheduler.simulation.world import World

SIMULATED = 4
"""Divisions simulated before neighbours are tried."""
ALL = 128
"""Up to so many slots every division is ranked."""
FINEST = 1 / 256

Division = tuple[int, int, int]


def best_static(cargo: Cargo) -> dict[str, int]:
    """Pool → slots. Simulates a few dozen runs."""
    known: dict[Division, float] = {}

    def seconds(division: Division) -> float:
        if division not in known:
            split = named(division)
            known[division] = World(cargo, static(cargo.workload, split)).run().seconds
        return known[division]

    step, finest = max(1, cargo.slots // 64), max(1, round(cargo.slots * FINEST))
    best = min(ranked(cargo)[:SIMULATED], key=seconds)
    while True:
        better = min(neighbours(best, step), key=seconds, default=best)
        if seconds(better) < seconds(best):
            best = better
        elif step > finest:
            step //= 2
        else:
            return named(best)


def ranked(cargo: Cargo) -> list[Division]:
    """Divisions, the best bound first."""
    work, slots = cargo.work_by_version(), cargo.slots
    divisions = np.array(list(every(slots) if slots <= ALL else around(work, slots, cargo.workload.scaling)))
    speeds = divisions.astype(np.float64)
    speeds[:, 2] **= cargo.workload.scaling
    estimate = (work[:, None, :] / speeds[None, :, :]).max(axis=2).sum(axis=0)
    order = np.argsort(estimate, kind="stable")
    return [(int(a), int(b), int(c)) for a, b, c in divisions[order]]


def named(division: Division) -> dict[str, int]:
    rollout, judge, train = division
    return {"rollout": rollout, "judge": judge, "train": train}


def every(slots: int) -> Iterator[Division]:
    """All of them, at least one slot to each pool."""
    for rollout in range(1, slots - 1):
        for judge in range(1, slots - rollout):
            yield rollout, judge, slots - rollout - judge


def around(work: NDArray[np.float64], slots: int, scaling: float) -> Iterator[Division]:
    """A grid over what the fluid split is at some time of the run."""
    shares = np.array([fluid_slots(version, slots, scaling) for version in work.tolist()])
    low, high = np.floor(shares.min(axis=0)), np.ceil(shares.max(axis=0))
    step = max(1, slots // 256)
    for rollout in range(max(1, int(low[0])), int(high[0]) + 1, step):
        for judge in range(max(1, int(low[1])), int(high[1]) + 1, step):
            if rollout + judge < slots:
                yield rollout, judge, slots - rollout - judge


def neighbours(division: Division, step: int) -> Iterator[Division]:
    """`step` slots moved from one pool to another."""
    for source in range(3):
        for target in range(3):
            moved = list(division)
            moved[source] -= step
            moved[target] += step
            if source != target and moved[source] >= 1:
                yield moved[0], moved[1], moved[2]
