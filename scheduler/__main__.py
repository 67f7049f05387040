"""`python -m scheduler [--dry-run] [--name NAME]`: the daemon as a process. `tidemill scheduler` is the same.

For: wiring only. Not for: decisions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys

import structlog

from broker.errors import Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet
from broker.role_process import leave, run_role
from broker.settings import URL_VARIABLE
from broker.telemetry import configure
from scheduler.daemon import Daemon
from scheduler.fleet_metrics import telling

log = structlog.get_logger()


def schedule(*, dry_run: bool, name: str = "") -> int:
    """Run the daemon until SIGTERM; the exit code. `name`: of the process; by default its place in the lease."""
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        sys.stderr.write(
            str(
                Misconfigured(
                    f"{URL_VARIABLE} is not set, so there is no fleet to schedule; nothing was started; set it\n"
                )
            )
        )
        return Misconfigured.exit_code
    holder = f"{socket.gethostname()}.{os.getpid()}"
    name = name or f"scheduler.{holder}"
    configure(None, process=name, role="scheduler")
    return run_role(lambda stop: daemon(url, holder, name, dry_run, stop))


async def daemon(url: str, holder: str, name: str, dry_run: bool, stop: asyncio.Event) -> None:
    from scheduler.slots import ring

    fleet = Fleet.at(url, os.environ.get(FLEET_VARIABLE, FLEET))
    one = Daemon(fleet, holder, ring, say, dry_run=dry_run)
    try:
        with telling(one.tells.metrics, role="scheduler", process=name) as join:
            if not dry_run:
                one.on_run = join
            await one.run(stop)
    finally:
        await fleet.close()


def say(sentence: str) -> None:
    """To whoever watches it, and into its log."""
    print(sentence, flush=True)
    log.info("said", sentence=sentence, printed=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scheduler")
    parser.add_argument("--dry-run", action="store_true", help="decide and say, move nothing")
    parser.add_argument("--name", default="", help="name of the process; default: scheduler.HOST.PID")
    options = parser.parse_args()
    return schedule(dry_run=options.dry_run, name=options.name)


if __name__ == "__main__":
    leave(main())
