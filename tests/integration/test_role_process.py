"""A role's process leaves when it is told to, with the exit code that was meant."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

LOADING = """
import asyncio, time
from broker.role_process import leave, loaded, run_role

def load():
    print("loading", flush=True)
    time.sleep({seconds})
    return "the engine"

async def role(stop):
    print(await loaded(stop, load), flush=True)

leave(run_role(role))
"""


def started(seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADING.format(seconds=seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "loading\n"
    return process


def test_a_process_told_to_leave_while_it_loads_leaves_at_once() -> None:
    process = started(60)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert time.monotonic() - asked < 20


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_what_was_loaded_is_handed_over(seconds: float) -> None:
    process = started(seconds)
    assert process.stdout
    assert process.stdout.read() == "the engine\n"
    assert process.wait(20) == 0
