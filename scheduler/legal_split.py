"""A wish for a division of slots, brought inside what the pools and the fleet allow.

For: the planner. Not for: whether it is a good one (`placements`, `worth`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.pools import Pool


def legal(split: Mapping[str, int], pools: Sequence[Pool], usable: int, now: Mapping[str, int]) -> dict[str, int]:
    """`split` inside every min and max and adding up to what the fleet has, as far as that is possible.

    Too few slots for all minima: they are met in the order work flows. Slots nobody asked for stay where they are.
    """
    wanted = {pool.name: 0 for pool in pools}
    for pool in pools:
        wanted[pool.name] = min(pool.min, usable - sum(wanted.values()))
    free = usable - sum(wanted.values())
    for ask in (split, now, dict.fromkeys(wanted, usable)):
        lacking = {
            pool.name: max(0, min(ask.get(pool.name, 0), pool.most(usable)) - wanted[pool.name]) for pool in pools
        }
        while free and any(lacking.values()):
            name = max(lacking, key=lambda one: (lacking[one] / (wanted[one] + lacking[one] or 1), lacking[one]))
            part = lacking[name] if sum(lacking.values()) <= free else 1
            wanted[name] += part
            lacking[name] -= part
            free -= part
    return wanted
