"""Orders that come to a slot directly: by the control commands of its worker.

For: a person's `assign_pool` and `drain_slot`, and bells, which name an order that the record has already. Not for:
obeying (`slot`), or orders to any slot of a fleet (`tidemill slots`).
"""

from __future__ import annotations

from typing import Any

from broker.errors import TidemillError
from scheduler.pools import SHIPPED, pool_named
from scheduler.slot import Slot

Answer = dict[str, Any]


async def order(slot: Slot, pool: str, epoch: int) -> Answer:
    """Want the slot in `pool` from `epoch` on: written into its record, which it reads at once. Refused when there is
    no such pool, the epoch is not newer than what the slot obeys, or the pool has all the slots it may have.
    """
    slot.bell.set()
    pools = slot.known.pools if slot.known else tuple(SHIPPED.values())
    if pool and pool not in (names := [one.name for one in pools]):
        return refused(f'"{pool}" is no pool', f"pools: {', '.join(names)}")
    if epoch <= slot.wanted.epoch:
        return refused(f"epoch {epoch} is not newer", f"the slot obeys {in_words(slot.wanted.epoch, slot.wanted.pool)}")
    try:
        return await recorded(slot, pool, epoch, pool_named(pool, pools).max if pool else None)
    except TidemillError as error:
        return refused(str(error), "ask again")
    finally:
        slot.bell.set()


async def recorded(slot: Slot, pool: str, epoch: int, most: int | None) -> Answer:
    """The order in the slot's record, if fewer than `most` others are wanted there. Raises Unavailable."""
    record = await slot.fleet.wanted(slot.id)
    if (record.epoch, record.pool) == (epoch, pool):
        return {"accepted": epoch}
    if epoch <= record.epoch:
        return refused(f"epoch {epoch} is not newer", f"the record says {in_words(record.epoch, record.pool)}")
    done = await slot.fleet.assign(
        slot.id, pool, seen=record.epoch, epoch=epoch, most=most, reason="ordered", by="control"
    )
    if done.answer == "full":
        return refused(f"{pool} may have {most} and has {done.pool}", "move one of them away first")
    if done.answer != "done":
        return refused(f"another order came first: {in_words(done.epoch, done.pool)}", "ask again")
    return {"accepted": epoch}


def refused(why: str, mend: str) -> Answer:
    return {"refused": f"{why}, nothing was moved; {mend}"}


def in_words(epoch: int, pool: str) -> str:
    return f"epoch {epoch}, pool {pool or 'none'}"
