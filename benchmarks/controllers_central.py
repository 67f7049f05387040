"""One central controller that carries every payload: what `benchmarks.controllers` compares parallel ones with.

For: an architecture like that of single-controller trainers, built with care: one asyncio process makes the prompts,
hands them to whichever worker has a place free, keeps the bodies that come back, hands them to the judges and then to
the trainer. Not for: use. Nothing is written down: if this process dies, all that is open is lost; if a worker dies, so
is what it held; and nothing keeps a group from training twice.

A frame is two lengths, a MessagePack head, and bodies as they are: the central process never decodes a tensor and never
encodes one again. Workers use the product's codec, as controllers on the broker do.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.controllers_load import Load, Moments, Ready, Role, Work
from benchmarks.message_sizes import parts_of
from broker import codec
from broker.cancellation import end
from broker.fields import packb, unpackb
from broker.messages import Group

LIMIT = 4 << 20
"""Bytes a connection may read ahead: more than the largest body, so that reading one is never interrupted."""
PIECE = 128 << 10
"""Bytes handed to a transport at once."""
LENGTHS = struct.Struct(">II")
LEAVE_S = 30
"""In which workers, told to stop in the same moment, must have closed."""
NEXT = {"rollout": "reward", "reward": "train"}


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[Any, bytes]]:
    """(head, bodies) until the other side closes."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head, body = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
            yield cast("Any", unpackb(await reader.readexactly(head))), await reader.readexactly(body) if body else b""


class Line:
    """Frames to one connection, in order. A large body leaves in pieces: handed over whole, the transport would copy it
    into a buffer of its own, which costs most of the time at 1 MB.

    Nobody waits for a frame to be gone: what may be on its way is bounded by the places of the receiver.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.unsent: deque[bytes] = deque()
        self.sending: asyncio.Task[None] | None = None

    def send(self, head: object, *bodies: bytes) -> None:
        if self.writer.is_closing():
            return
        packed, size = packb(head), sum(map(len, bodies))
        frame = (LENGTHS.pack(len(packed), size), packed, *bodies)
        if size < PIECE and self.sending is None:
            self.writer.write(b"".join(frame))
            return
        self.unsent.extend(frame)
        if self.sending is None:
            self.sending = asyncio.create_task(self.send_pieces())

    async def send_pieces(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self.unsent:
                part = memoryview(self.unsent.popleft())
                for at in range(0, len(part), PIECE):
                    self.writer.write(part[at : at + PIECE])
                    await self.writer.drain()
        self.sending = None


# ---- the central controller


@dataclass(slots=True)
class Central:
    """All groups that are open, who has places free, what waits for one."""

    load: Load
    prompt: bytes
    cursor: int = 0
    open: int = 0
    bodies: dict[str, list[bytes]] = field(default_factory=dict[str, "list[bytes]"])
    waiting: dict[str, deque[str]] = field(default_factory=lambda: {"reward": deque[str](), "train": deque[str]()})
    free: dict[str, deque[Line]] = field(
        default_factory=lambda: {role: deque[Line]() for role in ("rollout", "reward", "train")}
    )
    """One entry per free place, so that places are used in turn."""
    workers: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """The last worker has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(writer)
        self.workers += 1
        self.left.clear()
        await self.follow(reader, line)
        for role, places in self.free.items():
            self.free[role] = deque(place for place in places if place is not line)
        await end([line.sending] if line.sending else [])
        self.workers -= 1
        if not self.workers:
            self.left.set()

    async def follow(self, reader: asyncio.StreamReader, line: Line) -> None:
        """consumes: frames of one worker   produces: frames to others
        waits for: a frame   unblocked by: the worker, its end
        """
        async for (verb, role, names), body in frames(reader):
            if verb == "places":
                for _ in range(names):
                    self.free[role].append(line)
            elif verb == "done":
                self.free[role].append(line)
                self.bodies[names].append(body)
                self.waiting[NEXT[role]].append(names)
            else:  # trained: the groups leave, and their places come free
                for name in names:
                    del self.bodies[name]
                    self.free["train"].append(line)
                self.open -= len(names)
            self.hand_out()

    def hand_out(self) -> None:
        for role, names in self.waiting.items():
            while names and self.free[role]:
                name = names.popleft()
                self.free[role].popleft().send((role, name), *self.bodies[name])
        while self.load.pace != "idle" and self.open < self.load.room and self.free["rollout"]:
            name = f"bench/0/{self.cursor}"
            self.cursor += 1
            self.open += 1
            self.bodies[name] = [self.prompt]
            self.free["rollout"].popleft().send(("rollout", name), self.prompt)


async def commanding(path: str, load: Load, ready: Ready, stop: asyncio.Event) -> Moments:
    prompt = codec.encode_prompt(Group(id="bench", kind="train", prompt=parts_of(load.body_bytes).prompt))
    central = Central(load=load, prompt=packb(prompt))
    server = await asyncio.start_unix_server(central.serve, path, limit=LIMIT, backlog=512)
    await ready()
    await stop.wait()
    await asyncio.wait_for(central.left.wait(), LEAVE_S)
    server.close()
    return Moments()


# ---- its workers


async def working(
    name: str, roles: Sequence[Role], path: str, load: Load, ready: Ready, stop: asyncio.Event
) -> Moments:
    """One worker: takes what it is sent, answers when it is done, until told to stop."""
    reader, writer = await asyncio.open_unix_connection(path, limit=LIMIT)
    line, work, tasks = Line(writer), Work.of(load), set[asyncio.Task[None]]()
    for role in roles:
        line.send(("places", role, load.in_hand))
    await ready()

    async def taking() -> None:
        async for (role, group), body in frames(reader):
            task = asyncio.create_task(answer(line, work, role, decoded(group, body)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    loop = asyncio.create_task(taking())
    await stop.wait()
    await end([loop, *tasks, *([line.sending] if line.sending else [])])
    writer.close()
    return work.moments


async def answer(line: Line, work: Work, role: Role, group: Group) -> None:
    if role == "rollout":
        added = codec.encode_rollouts(await work.roll_out(group.id, 0))
    else:
        added = codec.encode_scores(await work.score(group.id, group.rollouts))
    line.send(("done", role, group.id), packb(added))


async def learning(path: str, load: Load, ready: Ready, stop: asyncio.Event) -> Moments:
    """The trainer: holds what is scored and commits B groups at a time, nothing trained in between."""
    reader, writer = await asyncio.open_unix_connection(path, limit=LIMIT)
    line = Line(writer)
    line.send(("places", "train", load.room))
    await ready()

    async def committing() -> None:
        held: list[Group] = []
        async for (_, name), body in frames(reader):
            held.append(decoded(name, body))
            if len(held) == load.batch:
                line.send(("trained", "train", [group.id for group in held]))
                held.clear()

    loop = asyncio.create_task(committing())
    await stop.wait()
    await end([loop])
    writer.close()
    return Moments()


def decoded(name: str, body: bytes) -> Group:
    """The group of the parts that lie one after the other in `body`."""
    unpacker = msgpack.Unpacker(max_buffer_size=LIMIT)
    unpacker.feed(body)
    fields: dict[bytes, bytes] = {}
    for part in unpacker:
        fields |= part
    return codec.decode_group(name, "train", fields)
