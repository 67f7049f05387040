"""Rules in worker processes with hard deadlines: a rule that hangs or dies costs its own group and nothing else.

For: scoring groups by weighted rules. Not for: the rules themselves, or model rewards. A worker has one group at a time; at
the deadline it is killed and replaced, and the group's try counts. Nothing of this is ever scored as 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import structlog

from broker.errors import Misconfigured, Transient
from broker.messages import Group
from consumers.rewards.base import Score

log = structlog.get_logger()

START_S = 60.0
"""A worker imports its rules before it answers; some import for seconds."""


class RuleFailed(Exception):
    """A rule raised, or answered something that is no finite number."""


class RulePool:
    """See `consumers.rewards.base.Reward`. `parts`: (name, dotted path, weight, options)."""

    def __init__(self, parts: Sequence[tuple[str, str, float, dict[str, Any]]], *, processes: int, timeout_s: float) -> None:
        self.parts = [[name, path, options] for name, path, _, options in parts]
        self.weights = {name: weight for name, _, weight, _ in parts}
        self.timeout_s = timeout_s
        self.idle: asyncio.Queue[asyncio.subprocess.Process | None] = asyncio.Queue()
        for _ in range(processes):
            self.idle.put_nowait(None)
        self.processes = processes

    async def score(self, group: Group) -> Score:
        """Raises Transient when the worker died or overran, RuleFailed when a rule did, Misconfigured when none can start."""
        if group.rollouts is None:
            raise RuleFailed(f"group {group.id} has no rollouts")
        answer = await self.ask(
            {
                "id": group.id,
                "prompt": group.prompt.text,
                "answer": group.prompt.answer,
                "meta": dict(group.prompt.meta),
                "texts": list(group.rollouts.texts),
            }
        )
        if "error" in answer:
            raise RuleFailed(f"{answer['error']}; the group is tried again, then buried; mend the rule")
        found = {name: np.asarray(values, np.float32) for name, values in answer["parts"].items()}
        total = sum((self.weights[name] * values for name, values in found.items()), np.zeros(len(group.rollouts.texts), np.float32))
        return Score(rewards=np.asarray(total, np.float32), parts=found)

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        worker = await self.idle.get()
        try:
            if worker is None or worker.returncode is not None:
                worker = await self.start()
            return await asyncio.wait_for(converse(worker, question), self.timeout_s)
        except TimeoutError:
            worker = await end(worker)
            raise Transient(
                f"the rules took more than {self.timeout_s:g} s on group {question['id']}; their process was killed; "
                "the group is tried again, then buried; raise reward.timeout_s or mend the rule"
            ) from None
        except (ConnectionError, asyncio.IncompleteReadError):
            worker = await end(worker)
            raise Transient(
                f"the rules' process died on group {question['id']}; a new one is started; the group is tried again, then buried; "
                "its last words are in the role's .err log"
            ) from None
        except asyncio.CancelledError:
            worker = await end(worker)
            raise
        finally:
            self.idle.put_nowait(worker)

    async def start(self) -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "consumers.rewards.rule_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        answer = await asyncio.wait_for(converse(worker, self.parts), START_S)
        if "error" in answer:
            await end(worker)
            raise Misconfigured(f"[reward] parts: {answer['error']}; scoring stops; known names are in `consumers.rewards.REWARDS`")
        return worker

    async def close(self) -> None:
        for _ in range(self.processes):
            with contextlib.suppress(asyncio.QueueEmpty):
                await end(self.idle.get_nowait())


async def converse(worker: asyncio.subprocess.Process, message: Any) -> dict[str, Any]:
    """One question, one answer. Raises ConnectionError or IncompleteReadError when the worker is gone."""
    if worker.stdin is None or worker.stdout is None:
        raise ConnectionError("the worker has no pipes")
    packed = msgpack.packb(message) or b""
    worker.stdin.write(struct.pack("<I", len(packed)) + packed)
    await worker.stdin.drain()
    (size,) = struct.unpack("<I", await worker.stdout.readexactly(4))
    return msgpack.unpackb(await worker.stdout.readexactly(size))


async def end(worker: asyncio.subprocess.Process | None) -> None:
    """Kill and reap; the place in the pool becomes empty."""
    if worker is not None and worker.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await worker.wait()
