"""`tidemill slots`: see a run's slots, put one where it shall be, let it go again.

For: people. Not for: deciding (`scheduler.planner`). A person's order needs no lease, and pins: no scheduler moves the
slot until it is unpinned.
"""

from __future__ import annotations

import difflib
import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured, Transient
from broker.fleet import Fleet, Pin
from consumers.settings import needs_judge
from deploy.run_settings import RunSettings
from deploy.slot_crew import fleet_of
from scheduler.lookout import SILENT_S
from scheduler.pools import pool_named, pools_in_use

Row = dict[str, Any]


async def slot_rows(url: str, folder: Path) -> list[Row]:
    """One row per slot: where it is, where it is wanted, what it has done."""
    fleet = await Fleet.connect(url, fleet_of(folder.name))
    try:
        records, said = await fleet.records(), await fleet.said()
    finally:
        await fleet.close()
    return [row(name, record.pool, record.pinned, said.get(name, {})) for name, record in records.items()]


def row(name: str, wanted: str, pinned: bool, said: Row) -> Row:
    silent = not said or said["age_s"] > SILENT_S
    return {
        "slot": name,
        "state": "dead" if silent else said["state"],
        "pool": said.get("pool", ""),
        "wanted": f"{wanted} (pinned)" if pinned else wanted,
        "for_s": round(said.get("for_s", 0.0) + said.get("age_s", 0.0)),
        "held": said.get("held", 0),
        "moves": said.get("moved", 0),
        "done": {pool: done["items"] for pool, done in said.get("work", {}).items()},
        "detail": said.get("detail", ""),
    }


async def order(url: str, folder: Path, settings: RunSettings, slot: str, pool: str | None, pin: Pin) -> str:
    """Want `slot` in `pool` (None: where it is). What was done, in a sentence. Raises Misconfigured, Transient."""
    if pool:
        pool_named(pool, pools_in_use(settings.pools, judged=needs_judge(settings.reward)))
    fleet = await Fleet.connect(url, fleet_of(folder.name))
    try:
        check_slot(slot, await fleet.slots())
        record = await fleet.wanted(slot)
        target = record.pool if pool is None else pool
        by = getpass.getuser()
        done = await fleet.assign(slot, target, seen=record.epoch, reason="by hand", by=by, pin=pin)
    finally:
        await fleet.close()
    if done.answer != "done":
        raise Transient(f"{slot} was moved to {done.pool} in this very moment; nothing was done; ask again")
    how = {"pin": "pinned to", "unpin": "no longer pinned; it stays in", "": "ordered to"}[pin]
    return f"{slot} is {how} {target or 'no pool'} (epoch {done.epoch})"


def check_slot(slot: str, known: Sequence[str]) -> None:
    if slot not in known:
        near = difflib.get_close_matches(slot, known, n=1)
        hint = (f'did you mean "{near[0]}"? ' if near else "") + f"slots: {', '.join(known) or 'none'}"
        raise Misconfigured(f'"{slot}" is no slot of this fleet; nothing was moved; {hint}')
