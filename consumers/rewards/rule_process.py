"""One worker process of a rule pool, seen from its parent: started, asked, and killed when it is late.

For: the conversation and the deadline. Not for: which group goes to which process (`rule_pool`), or what the process
does (`rule_worker`). It is a process group of its own and dies with its parent, so neither a rule nor what a rule
started survives anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from broker.errors import Misconfigured, Transient
from broker.lifeline import tied_to_this_process
from consumers.rewards.rule_worker import HEAD, MARK, Answer, Part, Question, chunk_message, parts_message

START_S = 120.0
"""A worker imports its rules before it answers; some import for seconds, and on a busy machine for longer."""

REAP_S = 10.0
"""After SIGKILL."""


class Lost(Exception):
    """The process is gone: what it did to `group` of the chunk, in `part`, was the last thing it did."""

    def __init__(self, group: int, part: str, how: str) -> None:
        super().__init__(f"rule {part} {how}")
        self.group = group


@dataclass(slots=True)
class RuleProcess:
    parts: Sequence[Part]
    process: Process
    marks: mmap.mmap
    """Written by the process: where it is, and since when."""

    @classmethod
    async def spawn(cls, parts: Sequence[Part]) -> RuleProcess:
        """Ready to score. Raises Misconfigured when a rule cannot be made, Transient when the process does not
        answer."""
        with tempfile.TemporaryFile() as shared:
            shared.truncate(MARK.size)
            marks = mmap.mmap(shared.fileno(), MARK.size)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "consumers.rewards.rule_worker", str(shared.fileno())),
                stdin=PIPE,
                stdout=PIPE,
                pass_fds=(shared.fileno(),),
                start_new_session=True,
                preexec_fn=tied_to_this_process(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
                limit=1 << 20,
            )
        started = cls(parts, process, marks)
        try:
            problem = await started.first_word()
        except BaseException:
            await started.kill()
            raise
        if problem:
            await started.kill()
            raise Misconfigured(
                f"[reward] parts: {problem}; nothing is scored; correct the part's name or options, or its module"
            )
        return started

    async def first_word(self) -> str:
        """What is wrong with the parts; empty when they are ready."""
        try:
            async with asyncio.timeout(START_S):
                await self.say(parts_message(self.parts))
                return str(await self.hear())
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise Transient(
                f"the process of the rules {', '.join(part.name for part in self.parts)} did not start "
                f"({type(error).__name__}, at most {START_S:g} s); another one is tried; its last words are in this "
                "process's log"
            ) from error

    async def score(self, chunk: Sequence[Question], timeout_s: float) -> list[Answer]:
        """Raises Lost when one group took longer than `timeout_s`, or the process died; it is dead then."""
        MARK.pack_into(self.marks, 0, 0, 0, time.monotonic())
        conversation = asyncio.ensure_future(self.converse(chunk))
        try:
            while not conversation.done():
                left = self.begun() + timeout_s - time.monotonic()
                if left <= 0:
                    raise self.lost(f"took more than {timeout_s:g} s")
                await asyncio.wait((conversation,), timeout=left)
            return conversation.result()
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.kill()
            raise self.lost(f"ended its process ({self.ending()})") from None
        finally:
            if not conversation.done():
                conversation.cancel()
                await self.kill()

    async def converse(self, chunk: Sequence[Question]) -> list[Answer]:
        await self.say(chunk_message(chunk))
        return await self.hear()

    async def say(self, message: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(message)
        await self.process.stdin.drain()

    async def hear(self) -> Any:
        assert self.process.stdout is not None
        (size,) = HEAD.unpack(await self.process.stdout.readexactly(HEAD.size))
        return msgpack.unpackb(await self.process.stdout.readexactly(size))

    def begun(self) -> float:
        """When the group in hand was begun."""
        return MARK.unpack_from(self.marks)[2]

    def lost(self, how: str) -> Lost:
        group, part, _ = MARK.unpack_from(self.marks)
        return Lost(group, self.parts[part].name, how)

    def ending(self) -> str:
        code = self.process.returncode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    async def kill(self) -> None:
        """With everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), REAP_S)
