"""A scheduler that dies between order and bell: `python -m tests.faults.dying_scheduler`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from broker.fleet import FLEET, FLEET_VARIABLE, Fleet
from broker.role_process import leave, run_role
from broker.settings import URL_VARIABLE
from scheduler.daemon import Daemon


def die(node: str, pool: str, epoch: int) -> None:
    print(f"dies before it rings {node} for {pool}, epoch {epoch}", flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)


async def schedule(stop: asyncio.Event) -> None:
    fleet = Fleet.at(os.environ[URL_VARIABLE], os.environ.get(FLEET_VARIABLE, FLEET))
    await Daemon(fleet, f"dying.{os.getpid()}", die, lambda said: print(said, flush=True)).run(stop)  # noqa: T201


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    leave(run_role(schedule))
