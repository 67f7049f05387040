"""`tidemill doctor`: what this machine is, and whether a run can start on it.

For: one line per thing that a run needs, with the mend where one is missing. Not for: settings (`run --check`), runs in
trouble (`status`), or what is installed (`installation`, whose answers come along).
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from broker import embedded_server
from broker.address import without_password
from broker.errors import Misconfigured, TidemillError
from broker.settings import RUNS_VARIABLE, URL_VARIABLE
from deploy.cores import budget, usable_here
from deploy.examined import Examined, graded
from deploy.installation import accelerator, import_clashes, packages
from deploy.redis_command import ask
from deploy.run_check import load_run
from deploy.run_files import shipped_runs
from deploy.run_folder import runs_root
from deploy.server import check_given_server

FREE_GB = 5
MEMORY_GB = 4
SHARED_MEMORY_MB = 512
"""A container has 64 MB of it where nobody said otherwise; ranks and engines exchange tensors there."""
OPEN_FILES = 1024
SKEW_S = 2.0
"""Ages of decisions compare the clocks of scheduler and server."""


def examined() -> Iterator[Examined]:
    """Everything, one after the other."""
    yield python()
    yield cores()
    yield memory()
    yield disk(runs_root())
    yield shared_memory()
    yield open_files()
    yield import_clashes()
    yield from packages()
    yield from accelerator()
    yield attempt("embedded server", server_starts)
    if url := os.environ.get(URL_VARIABLE):
        yield from given_server(url)
    yield attempt("shipped runs", runs_are_sound)


def python() -> Examined:
    version = ".".join(map(str, sys.version_info[:3]))
    return graded("python", version, bad=sys.version_info < (3, 11), mend="install Python 3.11 or newer")


def cores() -> Examined:
    usable = usable_here()
    limit = "" if usable.quota is None else f", limited to {usable.quota:g} by the cgroup"
    shares = budget(usable, ["trainer-0", "rollout-0"])
    shared = ", ".join(f"{name} {share}" for name, share in shares.items())
    return Examined(what="cores", found=f"{len(usable.cores)}{limit}: {shared}")


def memory() -> Examined:
    there = psutil.virtual_memory()
    total_gb, free_gb = there.total / 2**30, there.available / 2**30
    words = f"{total_gb:.1f} GB, {free_gb:.1f} GB of them free"
    mend = f"a run needs about {MEMORY_GB} GB: end other programs, or take a larger machine"
    return graded("memory", words, bad=total_gb < MEMORY_GB, look=free_gb < MEMORY_GB, mend=mend)


def disk(root: Path) -> Examined:
    there = next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / 2**30
    mend = f"free {FREE_GB} GB, or let {RUNS_VARIABLE} name another disk"
    if not os.access(there, os.W_OK):
        return Examined(what="disk", found=f"{there} cannot be written", grade="bad", mend=mend)
    return graded("disk", f"{free_gb:.1f} GB free for {root}", bad=free_gb < FREE_GB, mend=mend)


def shared_memory() -> Examined:
    path = Path("/dev/shm")  # noqa: S108  the place itself is looked at, nothing is written
    if not path.is_dir():
        return Examined(what="shared memory", found="none", grade="look", mend="mount a tmpfs at /dev/shm")
    free_mb = shutil.disk_usage(path).free / 2**20
    mend = "several ranks and vLLM need more: --shm-size (docker), shm_size (compose), an emptyDir of medium Memory"
    return graded("shared memory", f"{free_mb:,.0f} MB free in {path}", look=free_mb < SHARED_MEMORY_MB, mend=mend)


def open_files() -> Examined:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = soft == resource.RLIM_INFINITY
    words = f"{'no limit' if endless else soft} (at most {'no limit' if hard == resource.RLIM_INFINITY else hard})"
    mend = f"ulimit -n {max(4 * OPEN_FILES, soft)}: a server needs one per connection, a fleet several per slot"
    return graded("open files", words, look=not endless and soft < OPEN_FILES, mend=mend)


def attempt(what: str, trial: Callable[[], str]) -> Examined:
    """A thing that is best tried."""
    try:
        return Examined(what=what, found=trial())
    except TidemillError as error:
        return Examined(what=what, found="fails", grade="bad", mend=str(error))


def server_starts() -> str:
    """Start one in a temporary folder, ask it, end it."""
    with tempfile.TemporaryDirectory() as folder, embedded_server.serving(Path(folder) / "redis") as url:
        facts = dict(line.split(":", 1) for line in ask(url, ["INFO", "server"]).decode().splitlines() if ":" in line)
        name = facts.get("server_name", "redis")
        return f"{name} {facts.get(f'{name}_version', '?')} from {embedded_server.find_server_file()}"


def given_server(url: str) -> Iterator[Examined]:
    """The one the environment names: whether it answers, keeps what it is given, and what time it has."""

    def answers() -> str:
        asyncio.run(check_given_server(url))
        return f"{without_password(url)} answers and keeps what it is given"

    reached = attempt(URL_VARIABLE, answers)
    yield reached
    if reached.grade == "ok":
        yield clock_of(url)


def clock_of(url: str) -> Examined:
    """The server's clock beside ours, read half-way through the question."""
    asked = time.time()
    seconds, micros = map(int, ask(url, ["TIME"]))
    ahead_s = seconds + micros / 1e6 - (asked + time.time()) / 2
    words = f"{abs(ahead_s):.2f} s {'ahead of' if ahead_s > 0 else 'behind'} this host's"
    return graded("its clock", words, look=abs(ahead_s) > SKEW_S, mend="let all hosts follow one time server (NTP)")


def runs_are_sound() -> str:
    names = shipped_runs()
    if not names:
        raise Misconfigured("no run files beside the program; install it again with deploy/setup.sh")
    for name in names:
        load_run(name)
    return ", ".join(names)
