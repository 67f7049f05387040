"""GPU slots as Celery workers: one worker a slot, one supervised controller in it.

    celery -A scheduler.slots worker -n gpu0@%h -P prefork -c 1 -Q control --slot gpu0 --initial-pool rollout
    celery -A scheduler.slots inspect slot_status
    celery -A scheduler.slots control -d gpu0@HOST assign_pool train 12

For: the Celery application, its worker options, its control and inspect commands. Not for: what a slot does (`slot`),
the operators' tasks (`short_tasks`), nor work: rollouts, rewards and training never pass through Celery, and a
controller is never a task.
"""

# Celery is untyped: its decorators, steps and options are not what the checker takes them for.
# pyright: reportUntypedFunctionDecorator=false, reportOptionalSubscript=false
# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false, reportIncompatibleVariableOverride=false

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import click
import structlog
from celery import bootsteps
from celery.signals import celeryd_init, worker_process_init
from celery.worker.control import control_command, inspect_command

from broker import telemetry
from broker.errors import Broken, Fenced, Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet
from broker.role_process import leave
from broker.settings import URL_VARIABLE
from scheduler.celery_fleet import application, bell_of
from scheduler.devices import VISIBLE, Devices, cores_named, usable_cores, visible_gpus
from scheduler.fleet_metrics import telling
from scheduler.forked_child import hide_gpus
from scheduler.hosting import check_hosting, slot_named
from scheduler.orders import order
from scheduler.slot import Slot

log = structlog.get_logger()

LEAVE_S = 90.0
"""Longest a worker waits for its controller's drain."""
REPLY_S = 2.0
"""Longest a control command is worked on."""


def checked(check: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """An option's value as it was typed, if `check` does not refuse it."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        try:
            if value is not None:
                check(value)
        except Misconfigured as error:
            raise click.BadParameter(str(error)) from None
        return value

    return callback


def option(name: str, words: str, check: Callable[[str], object]) -> click.Option:
    return click.Option((name,), default=None, help=words, callback=checked(check))


app = application(os.environ.get(URL_VARIABLE) or "redis://localhost:6379/0", os.environ.get(FLEET_VARIABLE, FLEET))
app.user_options["worker"].add(option("--slot", "Name of the slot this worker hosts.", slot_named))
app.user_options["worker"].add(option("--initial-pool", "Its pool when the fleet has no record of the slot.", str))
app.user_options["worker"].add(
    option(
        "--cores",
        "Cores its controllers stay on, as 2,3; default: anywhere.",
        lambda text: cores_named(text, usable_cores()),
    )
)


def fleet_here() -> Fleet:
    """The fleet that the environment names; the first call connects. Raises Misconfigured when it names no server."""
    if not os.environ.get(URL_VARIABLE):
        raise Misconfigured(
            f"{URL_VARIABLE} is not set, so this slot belongs to no fleet; nothing was started; set it, "
            'or say eval "$(tidemill slots env)" beside a run'
        )
    return Fleet.at(os.environ[URL_VARIABLE], os.environ.get(FLEET_VARIABLE, FLEET))


@celeryd_init.connect
def refuse_in_time(instance: Any, options: dict[str, Any], **_: Any) -> None:
    """A worker that may not host its slot ends before it has started anything."""
    if options.get("slot"):
        try:
            asyncio.run(
                check_hosting(fleet_here(), options["slot"], options.get("initial_pool") or "", str(instance.hostname))
            )
        except Misconfigured as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(error.exit_code)


class SlotStep(bootsteps.StartStopStep):
    """Hosts the slot's supervisor on a thread of its own, for the worker's whole life.

    It belongs to the worker's blueprint: a lost connection restarts only the consumer's, so the controller stays.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(
        self,
        worker: Any,
        slot: str | None = None,
        initial_pool: str | None = None,
        cores: str | None = None,
        **_: Any,
    ) -> None:
        self.slot_id, self.initial_pool, self.node = slot or "", initial_pool or "", str(worker.hostname)
        self.cores = cores_named(cores or "", usable_cores())
        self.enabled = bool(slot)
        self.slot: Slot | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopped = asyncio.Event()
        self.thread = threading.Thread(target=self.run, name="slot", daemon=True)
        worker.tidemill_slot = self

    def include_if(self, worker: Any) -> bool:
        return self.enabled

    def create(self, worker: Any) -> SlotStep:
        return self

    def start(self, worker: Any) -> None:
        self.thread.start()

    def stop(self, worker: Any) -> None:
        """The worker ends: drain, then leave nothing behind."""
        if self.loop is not None and self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.stopped.set)
            self.thread.join(LEAVE_S)

    terminate = stop

    def run(self) -> None:
        """In the thread, as long as the worker lives."""
        telemetry.configure(None, process=f"{self.slot_id}.worker", role="slot", slot=self.slot_id)
        try:
            asyncio.run(self.supervise())
        except Fenced as error:
            log.warning("another worker hosts the slot", reason=str(error))
            leave(error.exit_code)
        except Exception:
            log.exception("the supervisor failed; the worker ends, and its controller with it; start it again")
            leave(Broken.exit_code)

    async def supervise(self) -> None:
        self.loop = asyncio.get_running_loop()
        fleet = fleet_here()
        gpus = os.environ.get(VISIBLE, "")
        if not gpus and (there := visible_gpus(os.environ)):
            log.warning("the slot owns every GPU", gpus=",".join(there), mend=f"start its worker with {VISIBLE}=N")
        devices = Devices(gpus=gpus, cores=self.cores)
        self.slot = Slot(self.slot_id, fleet, devices, initial=self.initial_pool, node=self.node)
        with telling(self.slot.tells.metrics, role="slot", process=f"{self.slot_id}.worker", slot=self.slot_id) as join:
            self.slot.tells.about(self.slot)
            self.slot.tells.on_run = join
            await self.slot.supervise(self.stopped)

    def call(self, what: Callable[[Slot], Awaitable[Any]]) -> Any:
        """Run `what(slot)` on the slot's thread; control commands answer within moments."""

        async def on_the_loop(slot: Slot) -> Any:
            return await what(slot)

        if self.loop is None or self.slot is None:
            return {"error": "the slot is still starting; ask again"}
        asked = asyncio.run_coroutine_threadsafe(on_the_loop(self.slot), self.loop)
        try:
            return asked.result(REPLY_S)
        except TimeoutError:
            asked.cancel()
            return {"error": f"no answer within {REPLY_S:g} s; see with `inspect slot_status` what the slot obeys"}


app.steps["worker"].add(SlotStep)


def ask(state: Any, what: Any) -> Any:
    step = getattr(state.consumer.controller, "tidemill_slot", None)
    if step is None or not step.enabled:
        return {"error": "this worker hosts no slot; start it with --slot NAME"}
    return step.call(what)


@control_command(args=[("pool", str), ("epoch", str)], signature="<POOL> <EPOCH>")
def assign_pool(state: Any, pool: str = "", epoch: str | int = "", **_: Any) -> Any:
    """Move this worker's slot to POOL, if EPOCH is newer than what it obeys."""
    if not pool or not str(epoch).isdecimal():
        return {"refused": f'assign_pool "{pool}" "{epoch}": nothing was moved; say assign_pool POOL EPOCH, a number'}
    return ask(state, lambda slot: order(slot, pool, int(epoch)))


@control_command()
def drain_slot(state: Any, **_: Any) -> Any:
    """Let this worker's slot finish or give back what it holds, and serve nobody."""
    return ask(state, lambda slot: order(slot, "", slot.wanted.epoch + 1))


@inspect_command()
def slot_status(state: Any, **_: Any) -> Any:
    """Pool, state, epoch and controller of this worker's slot."""

    async def status(slot: Slot) -> dict[str, Any]:
        return {"slot": slot.id, **slot.status()}

    return ask(state, status)


@worker_process_init.connect
def no_gpu_in_a_forked_child(**_: Any) -> None:
    """Tasks run in a forked child."""
    hide_gpus()


ring = bell_of(app)
