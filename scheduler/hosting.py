"""Whether a worker may host a slot: its name, its first pool, and nobody else at it.

For: a worker that starts. Not for: what the slot does then (`slot`). Two hosts of one slot would run two controllers
under one name on different devices.
"""

from __future__ import annotations

import asyncio
import re

import structlog

from broker.errors import Misconfigured, Unavailable
from broker.fleet import Fleet, Served
from scheduler.served_run import ServedRun

log = structlog.get_logger()

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""It becomes part of keys, file names and process names."""
TWO_REPORTS_S = 2.5
"""Whoever hosts a slot reports once in this time."""


def slot_named(name: str) -> str:
    """Raises Misconfigured for what cannot be a slot's name."""
    if not NAME.fullmatch(name):
        raise Misconfigured(f'"{name}" cannot name a slot; nothing was started; use letters, digits, ., - and _')
    return name


async def check_hosting(fleet: Fleet, slot: str, initial: str, node: str) -> None:
    """Raises Misconfigured for a slot that this worker may not host. A server that does not answer says nothing: the
    worker will wait for it. Closes the fleet.
    """
    try:
        served = await fleet.served()
        if served is not None:
            check_pool(initial, served)
        await check_vacancy(fleet, slot, node)
    except Unavailable as error:
        log.warning("the fleet's server does not answer", reason=str(error))
    finally:
        await fleet.close()


def check_pool(name: str, served: Served) -> None:
    """Raises Misconfigured when the fleet's run has no such pool, or its folder is not there on this host."""
    known = ServedRun.read(served).names
    if name and name not in known:
        raise Misconfigured(
            f'--initial-pool "{name}" is no pool of run {served.run}; nothing was started; pools: {", ".join(known)}'
        )


async def check_vacancy(fleet: Fleet, slot: str, node: str) -> None:
    """Raises Misconfigured when a worker of another name hosts this slot and goes on reporting. Raises Unavailable."""
    before = (await fleet.said()).get(slot)
    if before is None or before["state"] == "dead" or before["node"] in ("", node):
        return
    await asyncio.sleep(TWO_REPORTS_S)
    now = (await fleet.said()).get(slot, before)
    if now["at"] > before["at"] and now["state"] != "dead":
        raise Misconfigured(
            f"slot {slot} is hosted by {now['node']}, which reported {now['age_s']:.0f} s ago; this worker ends; "
            f"stop that one, or give this one another --slot"
        )
