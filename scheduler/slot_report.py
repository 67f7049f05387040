"""What a slot says of itself: its report to the fleet, and the answer to `slot_status`.

For: schedulers, people, the answer on the command line. Not for: what the slot does (`slot`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.lifecycle import State

if TYPE_CHECKING:
    from scheduler.slot import Slot


def report(slot: Slot, now: float) -> dict[str, Any]:
    """Times are ages, because clocks of hosts differ; `now` is the slot's own clock."""
    return {
        "state": str(slot.state),
        "pool": slot.pool,
        "bound_for": slot.wanted.pool if slot.state is State.DRAINING else "",
        "epoch": slot.wanted.epoch,
        "pinned": slot.wanted.pinned,
        "for_s": round(now - slot.since, 3),
        "ordered_s": round(now - slot.ordered, 3),
        "drain_left_s": round(max(0.0, slot.drain_by - now), 3),
        "moved": slot.moved,
        "move_s": round(slot.move_s, 3),
        "node": slot.node,
        "pid": (slot.process.pid if slot.process else None) or 0,
        "detail": slot.detail,
        "gpus": slot.devices.gpus,
        "cores": ",".join(map(str, slot.devices.cores)),
        "held": slot.tally.held,
        "work": slot.tally.work(),
    }
