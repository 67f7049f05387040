"""Rules that do what a completion tells them: everything a rule should not do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def obedient(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    """The number the completion is, or 1 after the misdeed it names."""
    deed, _, argument = completion.partition(" ")
    if deed not in DEEDS:
        return float(deed)
    DEEDS[deed](argument)
    return 1.0


def spin(_: str) -> None:
    while True:
        pass


def hold_the_lock(_: str) -> None:
    """The interpreter waits with it: nothing in the process can end it."""
    ctypes.PyDLL(None).sleep(1000)


def raises(argument: str) -> None:
    raise KeyError(argument)


def start_a_child(note: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(1000)


DEEDS: dict[str, Callable[[str], object]] = {
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "spin": spin,
    "hold-the-lock": hold_the_lock,
    "crash": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda code: os._exit(int(code)),
    "exit": lambda code: sys.exit(int(code)),
    "raise": raises,
    "print": lambda text: print(text, flush=True),  # noqa: T201 - it is the misdeed
    "start-a-child": start_a_child,
}


def length_of_meta(*, prompt: str, completion: str, answer: str, meta: dict[str, list[int]]) -> float:
    return float(len(meta["levels"])) + float(answer == "ü") + float(prompt == "p")


def pid(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    return float(os.getpid())


class TooSlowToMake:
    def __init__(self) -> None:
        time.sleep(1000)

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: object) -> float:
        return 0.0


def breaks_for_odd_prompts(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    """Whatever the completion is."""
    if int(prompt[0]) % 2:
        raise RuntimeError("a rule of a test broke")
    return float(completion == answer)


def sleeps(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    """Whatever the completion is."""
    time.sleep(1000)
    return 0.0
