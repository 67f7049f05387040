"""`tidemill slots`: see a run's slots, put one where it shall be, let it go again.

For: people. Not for: deciding (`scheduler.planner`). A person's order needs no lease, and pins: no scheduler moves the
slot until it is unpinned.
"""

from __future__ import annotations

import asyncio
import difflib
import getpass
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.address import has_password
from broker.errors import Misconfigured, Transient
from broker.fleet import Assigned, Fleet, Pin, Wanted
from broker.redis_broker import RedisBroker
from broker.standing import FleetStanding, standing
from consumers.settings import needs_judge
from deploy.finding import duration
from deploy.fleet_facts import slot_of
from deploy.looks import live_url
from deploy.run_files import shipped_runs
from deploy.run_settings import RunSettings
from deploy.slot_crew import fleet_named, fleet_of
from scheduler.daemon import BELL_S
from scheduler.pools import in_words, pool_named, pools_in_use

Row = dict[str, Any]
BY_HAND = "by hand"


async def fleet_now(url: str, folder: Path) -> FleetStanding:
    """The run's fleet at one moment. Raises Unavailable."""
    run = await RedisBroker.connect(url, folder.name)
    try:
        return (await standing(run.connection, fleet_of(folder.name))).fleet
    finally:
        await run.close()


def slot_rows(fleet: FleetStanding) -> list[Row]:
    """One row per slot: where it is and why, where it is wanted, what it has done."""
    return [row(name, record, fleet.said.get(name, {})) for name, record in fleet.slots.items()]


def row(name: str, record: Wanted, said: Mapping[str, Any]) -> Row:
    slot = slot_of(record, said)
    return {
        "slot": name,
        "devices": slot.devices,
        "state": slot.state,
        "pool": slot.pool,
        "wanted": f"{slot.wanted} (pinned)" if slot.pinned else slot.wanted,
        "for_s": round(slot.for_s),
        "held": slot.held,
        "moves": slot.moves,
        "move_s": said.get("move_s", 0.0),
        "done": {pool: done["items"] for pool, done in said.get("work", {}).items()},
        "detail": said.get("detail", ""),
        "reason": record.reason,
        "by": record.by,
    }


def shown(row: Row) -> Row:
    """A slot as a person reads it: units at the numbers, and why it is where it is."""
    return {
        **{name: row[name] for name in ("slot", "devices", "state", "pool", "wanted")},
        "for": duration(row["for_s"]),
        "in hand": row["held"],
        "done": ", ".join(f"{pool} {count}" for pool, count in row["done"].items()),
        "moves": f"{row['moves']}, last {row['move_s']:.1f} s" if row["moves"] else "0",
        "why": row["detail"] or (f"by hand: {row['by']}" if row["reason"] == BY_HAND else row["reason"]),
    }


def without_slots(folder: Path, settings: RunSettings) -> str:
    """Why a fleet has none, and how a run gets some."""
    if settings.scheduler.slots:
        return f"no slot of {folder.name} has reported yet; `tidemill status {folder.name}` says what the run is at"
    name = settings.run.name if settings.run.name in shipped_runs() else "FILE"
    return (
        f"{folder.name} has no slots: its processes stay where they are (`tidemill status {folder.name}`); "
        f"`tidemill run {name} --slots 2` starts a run whose slots move"
    )


def fleet_variables(folder: Path, settings: RunSettings) -> dict[str, str]:
    """Where whoever joins the run's fleet finds it. Raises Misconfigured when its server has ended with the run."""
    url = live_url(folder, settings)
    if not url:
        raise Misconfigured(
            f"the server of {folder.name} ended with the run; nothing to connect to; `tidemill resume` starts it"
        )
    return fleet_named(folder, url)


def environment(folder: Path, settings: RunSettings) -> str:
    """The same for a shell, where stock `celery` and `redis-cli` are used."""
    facts = fleet_variables(folder, settings)
    shown = {name: value for name, value in facts.items() if not has_password(value)}  # the shell has it already
    return "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in shown.items())


async def order(url: str, folder: Path, settings: RunSettings, slot: str, pool: str | None, pin: Pin) -> str:
    """Want `slot` in `pool` (None: where it is). What was done, in a sentence. Raises Misconfigured, Transient."""
    fleet = await Fleet.connect(url, fleet_of(folder.name))
    try:
        records, said = await fleet.records(), await fleet.said()
        if not records:
            raise Misconfigured(f"nothing was moved; {without_slots(folder, settings)}")
        check_slot(slot, list(records))
        pools = pools_in_use(settings.pools, judged=needs_judge(settings.reward))
        most = pool_named(pool, pools).max if pool else None
        target = records[slot].pool if pool is None else pool
        by = getpass.getuser()
        seen = records[slot].epoch
        done = await fleet.assign(slot, target, seen=seen, reason=BY_HAND, by=by, pin=pin, most=most)
    finally:
        await fleet.close()
    if done.answer == "full":
        raise Misconfigured(
            f"{pool} may have {in_words(most or 0, 'slot')} and has {done.pool}; nothing was moved; move one of them "
            "away first"
        )
    if done.answer != "done":
        raise Transient(f"{slot} was moved to {done.pool} in this very moment; nothing was done; ask again")
    how = {"pin": "pinned to", "unpin": "no longer pinned; it stays in", "": "ordered to"}[pin]
    told = f"{slot} is {how} {target or 'no pool'} (epoch {done.epoch})"
    if row(slot, records[slot], said.get(slot, {}))["state"] == "dead":
        return f"{told}; it is silent now and obeys when its worker is back"
    return told + await rung(url, folder, said[slot]["node"], done)


async def rung(url: str, folder: Path, node: str, done: Assigned) -> str:
    """Ring the slot's bell, so that it reads its record now and not in a second. A bell that does not ring costs that
    second, and is told.
    """
    from scheduler.celery_fleet import application, bell_of

    try:
        ring = bell_of(application(url, fleet_of(folder.name)))
        await asyncio.wait_for(asyncio.to_thread(ring, node, done.pool, done.epoch), BELL_S)
    except Exception as error:  # noqa: BLE001  whatever a bell fails of: the order stands
        return f"; its bell did not ring ({type(error).__name__}), so it obeys a moment later"
    return ""


def check_slot(slot: str, known: Sequence[str]) -> None:
    if slot not in known:
        near = difflib.get_close_matches(slot, known, n=1)
        hint = (f'did you mean "{near[0]}"? ' if near else "") + f"slots: {', '.join(known)}"
        raise Misconfigured(f'"{slot}" is no slot of this fleet; nothing was moved; {hint}')
