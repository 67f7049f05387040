"""Orders that come at an awkward moment: a controller works already, and its supervisor has not heard of it yet."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from broker.errors import Fenced
from broker.fleet import Fleet, Wanted
from scheduler.controller_process import Command, ControllerProcess
from scheduler.devices import Devices
from scheduler.lifecycle import State
from scheduler.slot import Slot
from scheduler.spare_process import SpareProcess
from tests.integration.test_launcher import until

WORKS = """
import os, signal, sys, time
def leave(*_):
    print("finished what it had taken", flush=True)
    os._exit(int(sys.argv[1]))
signal.signal(signal.SIGTERM, leave)
print("working", flush=True)
while True:
    time.sleep(1)
"""


def slot_that_loads(folder: Path, argv: tuple[str, ...]) -> tuple[Slot, Path]:
    """A slot on its way to `train`, whose controller is this command, and what that writes."""
    slot = Slot("gpu0", Fleet.at(f"unix://{folder}/nobody"), Devices())
    slot.obey(Wanted(pool="train", epoch=1))
    output = folder / "gpu0.err"
    slot.process = ControllerProcess(Command(name="gpu0", argv=argv, output=output))
    slot.process.start(time.monotonic())
    return slot, output


def ended(slot: Slot) -> bool:
    """Let the supervisor watch; whether the controller is gone."""
    slot.tick(time.monotonic())
    return slot.process is None


@pytest.mark.parametrize("code", [0, Fenced.exit_code])
async def test_a_controller_finishes_what_it_took_before_it_was_known_to_work(code: int, tmp_path: Path) -> None:
    slot, output = slot_that_loads(tmp_path, (sys.executable, "-c", WORKS, str(code)))
    until(lambda: output.exists() and "working" in output.read_text())
    slot.obey(Wanted(pool="rollout", epoch=2))
    until(lambda: ended(slot))
    assert "finished what it had taken" in output.read_text()
    assert (slot.state, slot.pool, slot.wanted.pool) == (State.MOVING, "rollout", "rollout")
    assert slot.not_before <= time.monotonic(), "the next one waits for nothing"


def test_a_spare_that_cannot_be_started_is_done_without_for_a_while(tmp_path: Path) -> None:
    spare = SpareProcess()
    spare.keep(Command(name="gpu0", argv=(str(tmp_path / "nowhere"),), output=tmp_path / "gpu0.err"))
    spare.tick(100.0, settled=True)
    assert (spare.process, spare.become(Command(name="gpu0", argv=("x",), output=tmp_path / "gpu0.err"))) == (
        None,
        None,
    )
    spare.keep(spare.wanted)
    assert spare.not_before > 101.0


async def test_orders_that_follow_do_not_put_a_drains_deadline_off(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    slot, output = slot_that_loads(tmp_path, (sys.executable, "-c", deaf))
    until(lambda: output.exists() and "deaf" in output.read_text())
    began = time.monotonic()
    for epoch, pool in enumerate(["rollout", "train"] * 1000, start=2):
        slot.obey(Wanted(pool=pool, epoch=epoch))
        if ended(slot):
            break
        assert time.monotonic() - began < slot.drain_s + 5, "orders kept it alive"
        await asyncio.sleep(0.02)
    assert slot.process is None
    assert time.monotonic() - began >= slot.drain_s
