"""A slot watches its controller also while its server says nothing: a network that swallows packets, a server that is
stopped. Server and controller are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from broker import embedded_server
from broker.fleet import Fleet, Wanted
from scheduler.controller_process import Command, ControllerProcess
from scheduler.devices import Devices
from scheduler.lifecycle import State
from scheduler.respawn import Limits
from scheduler.slot import Slot

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
NOTICED_S = 3.0
"""Longest that a slot may need to notice something on busy cores; an answer is waited for fifteen seconds."""


async def until(true: Callable[[], object], within_s: float) -> None:
    """Wait for `true()`."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.01)


class Silence:
    """A supervised slot on a server that stops answering when told to."""

    def __init__(self, folder: Path, url: str) -> None:
        self.output = folder / "gpu0.err"
        self.slot = Slot("gpu0", Fleet.at(url), Devices())
        self.slot.is_heard = False
        self.slot.obey(Wanted(pool="train", epoch=1))
        self.stop = asyncio.Event()
        with redis.Redis.from_url(url) as client:
            self.server = int(client.info("server")["process_id"])

    def controller(self, code: str) -> ControllerProcess:
        command = Command(name="gpu0", argv=(sys.executable, "-c", code), output=self.output)
        self.slot.process = ControllerProcess(command, Limits(crashes=1))
        self.slot.process.start(time.monotonic())
        return self.slot.process

    async def falls_silent(self) -> None:
        """When the slot has heard it once, and asks again."""
        await until(lambda: self.slot.is_heard, 10)
        os.kill(self.server, signal.SIGSTOP)
        self.slot.bell.set()
        await until(lambda: not self.slot.bell.is_set(), 5)


@asynccontextmanager
async def supervised(folder: Path, code: str) -> AsyncGenerator[Silence]:
    with embedded_server.serving(folder / "redis") as url:
        scene = Silence(folder, url)
        scene.controller(code)
        supervisor = asyncio.create_task(scene.slot.supervise(scene.stop))
        try:
            yield scene
        finally:
            os.kill(scene.server, signal.SIGCONT)
            scene.stop.set()
            await asyncio.wait_for(supervisor, 20)


@pytest.mark.timeout(120)
async def test_a_drain_ends_by_its_deadline_though_the_server_is_silent(tmp_path: Path) -> None:
    async with supervised(tmp_path, DEAF) as scene:
        await until(lambda: scene.output.exists() and "deaf" in scene.output.read_text(), 20)
        await scene.falls_silent()
        began = time.monotonic()
        scene.slot.obey(Wanted(pool="rollout", epoch=2))
        await until(lambda: scene.slot.process is None, scene.slot.drain_s + NOTICED_S)
        assert time.monotonic() - began >= scene.slot.drain_s, "it left in good order, so no deadline was overrun"
        assert (scene.slot.state, scene.slot.pool) == (State.MOVING, "rollout")


@pytest.mark.timeout(120)
async def test_a_controller_that_dies_is_noticed_though_the_server_is_silent(tmp_path: Path) -> None:
    async with supervised(tmp_path, "import time; time.sleep(60)") as scene:
        await scene.falls_silent()
        process = scene.slot.process
        assert process is not None and process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: scene.slot.state is State.PARKED, NOTICED_S)
        assert "SIGKILL" in scene.slot.detail


@pytest.mark.timeout(120)
async def test_a_slot_leaves_by_its_deadline_though_the_server_is_silent(tmp_path: Path) -> None:
    async with supervised(tmp_path, DEAF) as scene:
        await until(lambda: scene.output.exists() and "deaf" in scene.output.read_text(), 20)
        await scene.falls_silent()
        scene.stop.set()
        await until(lambda: scene.slot.process is None, scene.slot.drain_s + NOTICED_S)
