"""What a gang of n slots gets done: n^β of what one does. And the division that such a fleet can at best have.

For: the train pool, whose members wait for each other. Not for: pools whose slots work side by side, where twice as
many do twice as much. Below one slot it is a share of one slot's time, which is linear. The speed is concave in n, so
no division that changes over time beats the one that stands still (Jensen): `least_slot_s` is a bound.
"""

from __future__ import annotations

from collections.abc import Sequence

HALVINGS = 60
"""Of the interval the bound is looked for in: to the last digit."""


def gang_speed(slots: float, scaling: float) -> float:
    """Over that of one slot."""
    return slots**scaling if slots > 1 else slots


def slots_for(speed: float, scaling: float) -> float:
    """So many slots have this speed together."""
    return speed ** (1 / scaling) if speed > 1 else speed


def least_slot_s(shared_s: float, train_s: float, slots: int, scaling: float) -> float:
    """N·T of the shortest T in which so many slots do this work: shared_s + T·slots_for(train_s/T) = N·T."""
    if scaling == 1 or not train_s:
        return shared_s + train_s
    fastest = slots / (shared_s + train_s)
    low, high = 0.0, fastest
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        low, high = (rate, high) if shared_s * rate + slots_for(train_s * rate, scaling) <= slots else (low, rate)
    return slots / low


def fluid_slots(work: Sequence[float], slots: int, scaling: float) -> list[float]:
    """The division, in fractions of slots, under which no pool waits for another; `work` by pool, training last."""
    total = least_slot_s(sum(work[:-1]), work[-1], slots, scaling)
    shared = [one / total * slots for one in work[:-1]]
    return [*shared, slots - sum(shared)]
