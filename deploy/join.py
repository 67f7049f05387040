"""Joining a fleet as a role that needs no slot: wait for the run it works for, then become that role's process.

For: `tidemill join feeder|reward` on any host that sees the server and the runs' folder. Not for: slots, which wait for
their run themselves (`scheduler.slot`), or roles of a run on one machine (`crew`). The process that waited becomes the
role: signals and exit codes are the role's own, and whoever started it may start it again when it has ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from broker.errors import Misconfigured, TidemillError
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet, Served
from broker.redis_broker import RedisBroker
from broker.settings import URL_VARIABLE, run_folder_settings
from deploy.cores import LIGHT
from deploy.crew import role_command
from scheduler.pools import needs_slot
from scheduler.served_run import check_place

ROLES = ("feeder", "reward")
LOOK_S = 1.0


def begin(role: str, name: str) -> NoReturn:
    """Wait, then become the role's process, which reports as `name`. Raises Misconfigured for another role, or without
    a server's address.
    """
    if role not in ROLES:
        raise Misconfigured(f"join {role}: nothing was started; say {' or '.join(ROLES)}; slots are Celery workers")
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        raise Misconfigured(f"{URL_VARIABLE} is not set, so there is no fleet to join; nothing was started; set it")
    served = asyncio.run(run_for(role, Fleet.at(url, os.environ.get(FLEET_VARIABLE, FLEET)), say))
    say(f"working for run {served.run}")
    command = role_command(name, Path(served.folder), LIGHT, served.url, role=role)
    os.execve(command.argv[0], command.argv, {**os.environ, **command.env})  # noqa: S606 - the list is built here


async def run_for(role: str, fleet: Fleet, say: Callable[[str], None]) -> Served:
    """consumes: the fleet's record, the run's state   produces: a run that this role can work for
    waits for: one   unblocked by: whoever names a run, or resumes it
    """
    said = ""
    try:
        while True:
            try:
                served = await fleet.served()
                reason = await hindrance(role, served)
            except TidemillError as error:
                served, reason = None, str(error)
            if served is not None and not reason:
                return served
            if reason != said:
                said = reason
                say(f"waiting: {reason}")
            await asyncio.sleep(LOOK_S)
    finally:
        await fleet.close()


async def hindrance(role: str, served: Served | None) -> str:
    """Why there is nothing to do for this role now; empty when there is."""
    if served is None:
        return "the fleet has no run to work for; `tidemill run NAME --elsewhere` names one"
    check_place(Path(served.folder))
    raw = run_folder_settings(Path(served.folder))
    if role == "reward" and needs_slot(raw["reward"]):
        return f"run {served.run} is scored by judges on slots, rules included"
    run = await RedisBroker.connect(served.url, served.run)
    try:
        finished = (await run.look()).finished
    finally:
        await run.close()
    return f"run {served.run} has ended ({finished})" if finished else ""


def say(sentence: str) -> None:
    print(sentence, flush=True)
