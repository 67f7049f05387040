"""The processes of a run whose placement moves: one Celery worker a slot, and the scheduler.

For: how they are started on one machine, and naming the run in their fleet. Not for: what a slot does
(`scheduler.slot`), or a fixed placement (`crew`). The fleet is the run's own, so a server may carry several.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from broker.fleet import FLEET_VARIABLE, Fleet, Served
from broker.redis_operator import RedisOperator
from broker.settings import RUNS_VARIABLE, URL_VARIABLE
from consumers.settings import needs_judge
from deploy.cores import LIGHT, Share, Usable, budget
from deploy.run_settings import RunSettings
from scheduler.controller_process import Command, thread_environment
from scheduler.devices import VISIBLE, shared_out, visible_gpus

SCHEDULER = "scheduler-0"


def fleet_of(run: str) -> str:
    """The fleet of a run: its own, unless the environment names another."""
    return os.environ.get(FLEET_VARIABLE) or f"{run}.fleet"


def slot_names(settings: RunSettings) -> list[str]:
    return [f"slot-{number}" for number in range(settings.scheduler.slots)]


def slot_shares(settings: RunSettings, usable: Usable) -> dict[str, Share]:
    """Every slot's part of the machine."""
    names = slot_names(settings)
    shares = budget(usable, names, ranks=1, pin=settings.scheduler.cores == "auto")
    gpus = shared_out(visible_gpus(os.environ), len(names))
    shares = {name: replace(shares[name], gpus=own) for name, own in zip(names, gpus, strict=True)}
    rules = {} if needs_judge(settings.reward) else {"reward-0": LIGHT}
    return {**shares, SCHEDULER: LIGHT, **rules, "feeder-0": LIGHT}


def slot_command(name: str, folder: Path, share: Share, url: str) -> Command:
    """How a slot's worker or the scheduler is started."""
    cores = ["--cores", ",".join(map(str, share.cores))] if share.cores else []
    gpus = {VISIBLE: share.gpus} if share.gpus else {}
    first = "train" if name == "slot-0" else "rollout"
    quiet = ("--without-gossip", "--without-mingle", "-E", "--loglevel", "warning")  # events: for Flower
    worker = ("celery", "-A", "scheduler.slots", "worker", "-n", f"{name}@{folder.name}", "-P", "prefork", "-c", "1")
    slot = (*worker, "-Q", "control", *quiet, "--slot", name, "--initial-pool", first, *cores)
    return Command(
        name=name,
        argv=(sys.executable, "-m", *(("scheduler", "--name", name) if name == SCHEDULER else slot)),
        env={**thread_environment(share.threads), **gpus, **fleet_named(folder, url)},
        output=folder / "logs" / f"{name}.{'said' if name == SCHEDULER else 'worker'}",
    )


def fleet_named(folder: Path, url: str) -> dict[str, str]:
    """The variables of whoever works for the run's fleet, and for runs beside it only."""
    return {URL_VARIABLE: url, FLEET_VARIABLE: fleet_of(folder.name), RUNS_VARIABLE: str(folder.resolve().parent)}


async def name_run(folder: Path, url: str) -> None:
    """From now on the fleet works for this run, also when it had ended. That is said first: a slot that finds an ended
    run starts nothing for it.
    """
    operator = await RedisOperator.connect(url, folder.name)
    await operator.ask_anew()
    await operator.close()
    fleet = await Fleet.connect(url, fleet_of(folder.name))
    await fleet.serve(Served(run=folder.name, folder=str(folder), url=url, asked=uuid4().hex))
    await fleet.close()
