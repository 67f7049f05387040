"""`python -m scheduler.spare --run DIR --for "producers rollout" …`: a process with the libraries of a slot's next
controller, which waits to become it.

For: taking imports, seconds of every start, out of a move. Not for: loading models, touching a GPU, or any work: it
imports and waits. What a command imports its package says itself (`PACKAGE.preload`); a package that says nothing is
imported when it starts.

    supervisor                                   spare
    spawns it while the controller works         imports, at a low priority
                                                 says on its standard input (a socket) that it is ready
    one line: what to become, as JSON            becomes it: same process, same group, same output

A forked child of a process that has imported these libraries would save the same; but their threads and CUDA do not
survive a fork. After it has taken over nothing differs from a controller that was spawned, but for the name in `ps`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import psutil

from broker.role_process import leave
from broker.settings import run_folder_settings

HEAVY = ("torch", "transformers", "deepspeed", "vllm")
"""Without any of these there is nothing worth waiting with."""
NICENESS = 10
"""While importing: about a tenth of a core that the controller wants for itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Import, wait, become. Leaves with 0 when nothing heavy is needed or the supervisor is gone."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.spare")
    parser.add_argument("--run", type=Path, required=True, help="run folder")
    parser.add_argument("--for", action="append", default=[], dest="commands", help="a command it may become")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    importlib.import_module("broker.redis_broker")  # on this thread: those NumPy starts keep an ordinary priority
    import_gently(options.run, options.commands)
    if not any(name in sys.modules for name in HEAVY):
        leave(0)
    memory = psutil.Process().memory_full_info()
    say({"import_s": round(time.monotonic() - began, 3), "rss_mb": memory.rss >> 20, "own_mb": memory.uss >> 20})
    become(heard())


def import_gently(folder: Path, commands: Sequence[str]) -> None:
    """Import on a thread of low priority: nobody may raise a process's priority again, but a thread may end."""
    failed: list[BaseException] = []

    def importing() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            preload(folder, commands)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failed.append(error)

    thread = threading.Thread(target=importing, name="importing")
    thread.start()
    thread.join()
    if failed:
        traceback.print_exception(failed[0])
        leave(1)


def preload(folder: Path, commands: Sequence[str]) -> None:
    """Let the package of each command import what the command's role will need for this run."""
    raw = run_folder_settings(folder)
    for command in commands:
        package, _, role = command.partition(" ")
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.preload"):
            importlib.import_module(f"{package}.preload").preload(role.split()[0] if role else "", folder, raw)


def say(facts: dict[str, float]) -> None:
    os.write(0, json.dumps(facts).encode())


def heard() -> list[str]:
    """The one line. Without it the supervisor is gone, or needs no spare any more."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 4096)
        if not more:
            leave(0)
        line += more
    return json.loads(line)


def become(words: Sequence[str]) -> None:
    """From here on this is `python -m WORDS`, started with nothing to read."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    module, *arguments = words
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
