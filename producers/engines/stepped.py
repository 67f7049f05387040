"""A stepping core as an asynchronous engine: one thread of its own does all the work, the event loop only hands over.

For: any `EngineCore`. Not for: engines that are asynchronous themselves (those are an `Engine` already).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from broker.errors import Broken, TidemillError, Transient
from broker.messages import Group, Rollouts
from producers.engines.base import Continuation, EngineCore

log = structlog.get_logger()

ResultT = TypeVar("ResultT")


class SteppedEngine:
    """See `base.Engine`.

    Groups asked for in the same turn of the event loop start in the same step. Errors of ours that `add`, `load` and
    `logprobs` raise go to whoever called; anything else, and anything a step raises, ends the engine: all who wait and
    all who come later are told.
    """

    def __init__(self, core: EngineCore, *, patience_s: float = 300.0, close_s: float = 10.0) -> None:
        """`patience_s`: a step or a load that takes longer counts as hanging. `close_s`: longest wait for the last
        step.
        """
        self.core = core
        self.capacity = core.capacity
        self.half_at = float(getattr(core, "half_at", 0.0))
        self.version = -1
        self.busy_s = 0.0
        """Seconds the core has worked."""
        self.tokens = 0
        """Actions of the groups it has finished."""
        self.beats = 0
        """Steps, loads and so on that it has finished: rises as long as it is not stuck."""
        self.patience_s, self.close_s = patience_s, close_s
        self.waiters: dict[str, asyncio.Future[Any]] = {}
        self.asked: list[tuple[str, Group]] = []
        self.count = 0
        self.calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.end: TidemillError | None = None
        self.thread: threading.Thread | None = None

    # On the event loop.

    async def generate(self, group: Group) -> Rollouts:
        ticket = self.ticket(group.id)
        if not self.asked:
            self.loop.call_soon(self.hand_over)
        self.asked.append((ticket, group))
        return await self.answer(ticket)

    async def load(self, folder: Path, version: int) -> None:
        await self.between_steps(f"version {version}", lambda: self.core.load(folder, version))
        self.version = version

    async def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        return await self.between_steps("log-probabilities", lambda: self.core.logprobs(sequences))

    async def close(self) -> None:
        """End the thread; whoever still waits is told. Raises Broken when its last step does not end by the
        deadline.
        """
        self.end = self.end or Transient("the engine was closed; the groups in hand go back to their stream")
        if self.thread is not None:
            self.calls.put(None)
            await asyncio.to_thread(self.thread.join, self.close_s)
            self.fail_all(self.end)
            if self.thread.is_alive():
                raise Broken(
                    f"the engine's step goes on {self.close_s:g} s after it was closed; its groups were given back; "
                    f"end the "
                    "process, and look in its log for what the step does"
                )

    def ticket(self, what: str) -> str:
        """A name of our own for one request: the same group may come again while its first run, given up, goes on."""
        if self.end is not None:
            raise self.end
        if self.thread is None:
            self.loop = asyncio.get_running_loop()
            self.thread = threading.Thread(target=self.work, name="engine", daemon=True)
            self.thread.start()
        self.count += 1
        ticket = f"{what}#{self.count}"
        self.waiters[ticket] = self.loop.create_future()
        return ticket

    def hand_over(self) -> None:
        """Everything that was asked for in the turn that ends."""
        asked, self.asked = self.asked, []
        self.calls.put(lambda: self.add(asked))

    async def between_steps(self, what: str, call: Callable[[], ResultT]) -> ResultT:
        ticket = self.ticket(what)
        self.calls.put(lambda: self.run(ticket, call))
        return await self.answer(ticket)

    async def answer(self, ticket: str) -> Any:
        """waits for: the ticket's future   unblocked by: the thread, its death, or `patience_s` without a beat"""
        future = self.waiters[ticket]
        try:
            while not future.done():
                beats = self.beats
                await asyncio.wait([future], timeout=self.patience_s)
                if not future.done() and beats == self.beats:
                    raise Broken(
                        f"the engine has not finished a step for {self.patience_s:g} s while {ticket} waits; the "
                        f"process stops "
                        "and its groups go to other producers; its log says what it was doing"
                    )
            return future.result()
        finally:
            del self.waiters[ticket]

    def tell(self, answers: Sequence[tuple[str, object]]) -> None:
        """Tickets and what became of them; a ticket that was given up is nobody's."""
        for ticket, result in answers:
            future = self.waiters.get(ticket)
            if future is None or future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    def fail_all(self, error: TidemillError) -> None:
        self.end = self.end or error
        self.tell([(ticket, error) for ticket in self.waiters])

    # In the thread.

    def work(self) -> None:
        """consumes: calls   produces: answers   waits for: a call, when the core is idle   unblocked by: a call or
        `close`
        """
        try:
            while self.obey():
                if not self.core.is_idle:
                    self.step()
            self.core.close()
        except BaseException as error:  # noqa: BLE001  whoever waits must hear of it, whatever it is
            self.die(error)

    def obey(self) -> bool:
        """Do all calls that are there; False once the engine was closed."""
        idle = self.core.is_idle
        while True:
            try:
                call = self.calls.get(block=idle)
            except Empty:
                return True
            if call is None:
                return False
            call()
            idle = False

    def step(self) -> None:
        with self.beat():
            finished = self.core.step()
        if finished:
            self.tokens += sum(len(rollouts.logprobs) for _, rollouts in finished)
            self.send(finished)

    def add(self, asked: Sequence[tuple[str, Group]]) -> None:
        refused: list[tuple[str, object]] = []
        for ticket, group in asked:
            try:
                self.core.add(replace(group, id=ticket))
            except TidemillError as error:
                refused.append((ticket, error))
        self.send(refused)

    def run(self, ticket: str, call: Callable[[], object]) -> None:
        try:
            with self.beat():
                result = call()
        except TidemillError as error:
            result = error
        self.send([(ticket, result)])

    @contextlib.contextmanager
    def beat(self) -> Generator[None]:
        """Time inside is the core's work."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.busy_s += time.monotonic() - began
            self.beats += 1

    def send(self, answers: Sequence[tuple[str, object]]) -> None:
        if answers:
            self.loop.call_soon_threadsafe(self.tell, answers)

    def die(self, error: BaseException) -> None:
        """Tell everybody. The event loop may be gone already: then nobody waits."""
        log.error("the engine failed", exc_info=error)
        said = (
            error
            if isinstance(error, TidemillError)
            else Broken(
                f"the engine failed: {type(error).__name__}: {error}; the process stops and its groups go to other "
                f"producers; the "
                "traceback is in its log"
            )
        )
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.fail_all, said)
