"""What can happen to a run on slots while its slots move: each strike is a function from the launch to the launch that
goes on. `swap` is the move in whose middle they strike: trainer and producer change places.

For: killing and stopping. Not for: what must be true meanwhile (`slot_witness`) or afterwards (`audit`).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from tests.faults.slot_runs import OnSlots
from tests.faults.strikes import BACK, Damage, everything_lost, kill, kill_server, nothing_lost
from tests.integration.test_launcher import left_over, until

SlotStrike = Callable[[OnSlots], OnSlots]

TRAINER, PRODUCER = "slot-0", "slot-1"


def swap(run: OnSlots) -> dict[str, int]:
    """Order it. Slot → the controller that is to leave."""
    leaving = {slot: run.controller(slot) for slot in (TRAINER, PRODUCER)}
    run.order(TRAINER, "rollout")
    run.order(PRODUCER, "train")
    return leaving


def arriving(run: OnSlots, slot: str, leaving: dict[str, int]) -> int:
    """The controller that has just been started for the new pool: it loads, and takes no work yet."""
    return run.controller(slot, other_than=leaving[slot])


def scheduler(run: OnSlots) -> OnSlots:
    swap(run)
    kill(run.scheduler())
    until(lambda: "scheduler-0 was killed by signal 9" in run.text())
    return run


def of_two_schedulers_the_leader(run: OnSlots) -> OnSlots:
    """Nobody trains until the other one leads: it must be the one who gives the trainer a slot again."""
    for slot in (TRAINER, PRODUCER):
        run.order(slot, "rollout", "pin")
    run.start_scheduler()
    until(lambda: "watching:" in run.schedulers_said(), 60)
    kill(run.scheduler())
    until(lambda: "leading, epoch 2" in run.schedulers_said(), 60)
    for slot in (TRAINER, PRODUCER):
        run.order(slot, "rollout", "unpin")
    return run


def leader_between_order_and_bell(run: OnSlots) -> OnSlots:
    """The launcher's own scheduler is held; when it goes on it still believes in its lease."""
    own = run.scheduler()
    os.kill(own, signal.SIGSTOP)
    try:
        run.on_the_fleet(lambda fleet: fleet.resign(f"{socket.gethostname()}.{own}"))
        run.order(TRAINER, "rollout")
        dying = run.start_scheduler("tests.faults.dying_scheduler")
        assert dying.wait(40) == -signal.SIGKILL
    finally:
        os.kill(own, signal.SIGCONT)
    assert "dies before it rings" in run.schedulers_said()
    return run


def worker_while(place: Callable[[OnSlots, dict[str, int]], str]) -> SlotStrike:
    def strike(run: OnSlots) -> OnSlots:
        workers = {slot: run.worker(slot) for slot in (TRAINER, PRODUCER)}
        slot = place(run, swap(run))
        kill(workers[slot])
        until(lambda: f"{slot} was killed by signal 9" in run.text())
        return run

    return strike


def trainer_leaves(run: OnSlots, leaving: dict[str, int]) -> str:
    return TRAINER


def trainer_arrives(run: OnSlots, leaving: dict[str, int]) -> str:
    arriving(run, PRODUCER, leaving)
    return PRODUCER


def producer_arrives(run: OnSlots, leaving: dict[str, int]) -> str:
    arriving(run, TRAINER, leaving)
    return TRAINER


def controller_that_arrives(run: OnSlots) -> OnSlots:
    leaving = swap(run)
    kill(arriving(run, PRODUCER, leaving))
    return run


def controller_that_leaves(run: OnSlots) -> OnSlots:
    for pid in swap(run).values():
        with suppress(ProcessLookupError):  # it may have left already
            kill(pid)
    return run


def launcher(run: OnSlots) -> OnSlots:
    arriving(run, PRODUCER, swap(run))
    kill(run.process.pid)
    run.process.wait()
    until(lambda: left_over(run.folder) == [])
    return run.again()


def server(damage: Damage) -> SlotStrike:
    def strike(run: OnSlots) -> OnSlots:
        swap(run)
        os.kill(run.process.pid, signal.SIGSTOP)
        try:
            kill_server(run.folder, damage)
        finally:
            os.kill(run.process.pid, signal.SIGCONT)
        until(lambda: BACK in run.text())
        return run

    return strike


def controller_that_does_not_hear(run: OnSlots) -> OnSlots:
    """Stopped again and again, it overruns its drain and is killed; others take over what it held."""
    stopped = run.controller(PRODUCER)
    run.order(PRODUCER, "train", "pin")
    run.order(TRAINER, "rollout", "pin")
    began = time.monotonic()
    with suppress(ProcessLookupError):
        while True:  # so often that it cannot leave in between, however busy the cores are
            assert time.monotonic() - began < 60, "a drain without end"
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(0.001)
    assert time.monotonic() - began > 3, "it left in good order, so no deadline was overrun"
    run.reported(PRODUCER, pool="train", state="serving")
    for slot, pool in ((TRAINER, "rollout"), (PRODUCER, "train")):
        run.order(slot, pool, "unpin")
    return run


SLOT_STRIKES: dict[str, SlotStrike] = {
    "scheduler": scheduler,
    "of two schedulers the leader": of_two_schedulers_the_leader,
    "leader between order and bell": leader_between_order_and_bell,
    "worker, trainer leaving": worker_while(trainer_leaves),
    "worker, trainer arriving": worker_while(trainer_arrives),
    "worker, producer arriving": worker_while(producer_arrives),
    "controller that arrives": controller_that_arrives,
    "controllers that leave": controller_that_leaves,
    "controller that does not hear": controller_that_does_not_hear,
    "launcher": launcher,
    "server": server(nothing_lost),
    "server, all lost": server(everything_lost),
}

BY_DAY = (
    "leader between order and bell",
    "worker, trainer arriving",
    "controller that does not hear",
    "server, all lost",
)
"""One of each kind; the others are struck at night."""
