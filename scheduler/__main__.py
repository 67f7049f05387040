"""`python -m scheduler [--dry-run]`: the daemon as a process. `tidemill scheduler` is the same.

For: wiring only. Not for: decisions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys

from broker.errors import Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet
from broker.role_process import leave, run_role
from broker.settings import URL_VARIABLE
from broker.telemetry import configure
from scheduler.daemon import Daemon


def schedule(*, dry_run: bool) -> int:
    """Run the daemon until SIGTERM; the exit code."""
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
    configure(None, process="scheduler", role="scheduler")
    return run_role(lambda stop: daemon(url, dry_run, stop))


async def daemon(url: str, dry_run: bool, stop: asyncio.Event) -> None:
    from scheduler.slots import ring

    fleet = Fleet.at(url, os.environ.get(FLEET_VARIABLE, FLEET))
    holder = f"{socket.gethostname()}.{os.getpid()}"
    try:
        await Daemon(fleet, holder, ring, say, dry_run=dry_run).run(stop)
    finally:
        await fleet.close()


def say(sentence: str) -> None:
    print(sentence, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scheduler")
    parser.add_argument("--dry-run", action="store_true", help="decide and say, move nothing")
    return schedule(dry_run=parser.parse_args().dry_run)


if __name__ == "__main__":
    leave(main())
