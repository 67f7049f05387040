"""The broker's contract on Redis or Valkey: finding and entering a run, admission, work, versions.

For: feeder, rollout producers, reward consumers, launchers. Not for: the trainer's verbs (`redis_trainer`, which adds
them), or the consuming loop (`consume`). Each verb is one Lua script under `scripts/`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from redis.exceptions import OutOfMemoryError

from broker import entries
from broker.address import without_password
from broker.contract import Admission, Announcement, Books, Evaluation, RunState
from broker.errors import Unavailable
from broker.messages import Delivery, Group, Kind
from broker.outcomes import Bury, Outcome, Verdict
from broker.redis_connection import Arg, RedisConnection, raise_refusal, sort_error, text
from broker.redis_forms import (
    announcement_of,
    books_of,
    evaluations_of,
    packed_group,
    run_state,
    settlement_call,
    why_closed,
)
from broker.redis_refusal import body_of, readable, verdicts_of
from broker.reports import aged, facts_of
from broker.streams import ROLE, WORK_STREAMS


class RedisBroker:
    """See `broker.contract` for what each method promises."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self.keys = connection.keys
        self.client = connection.client

    @classmethod
    async def connect(cls, url: str, run: str) -> Self:
        """A broker for `run`; raises Unavailable when the server does not answer."""
        broker = cls(RedisConnection.open(url, run))
        await broker.connection.ask(f"connecting to {without_password(url)}", broker.client.ping())
        return broker

    async def close(self) -> None:
        await self.connection.close()

    # Finding and entering the run

    async def look(self) -> RunState:
        pipe = self.client.pipeline(transaction=False)
        pipe.info("server")
        pipe.hgetall(self.keys.state)
        info, raw = await self.connection.ask("looking at the run", pipe.execute())
        return run_state({text(k): text(v) for k, v in raw.items()}, str(info["run_id"]))

    async def enter(self, *, timeout_s: float) -> RunState:
        deadline = time.monotonic() + timeout_s
        while True:
            problem = "the server does not answer"
            try:
                state = await self.look()
                problem = why_closed(state)
                if state.is_open:
                    self.connection.incarnation = str(state.incarnation)
                    await self.connection.load_scripts()
                    return state
            except Unavailable as error:
                problem = str(error)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"run {self.keys.run} could not be entered within {timeout_s:g} s: {problem}; giving up; "
                    "check that a trainer runs (`tidemill status`) and that the address is right"
                )
            await asyncio.sleep(0.1)

    async def backlog(self) -> dict[str, int]:
        pipe = self.client.pipeline(transaction=False)
        for stream in WORK_STREAMS:
            pipe.xlen(self.keys.stream(stream))
        lengths = await self.connection.ask("reading backlogs", pipe.execute())
        return dict(zip(WORK_STREAMS, map(int, lengths), strict=True))

    async def books(self) -> Books:
        return books_of(await self.connection.direct("books"))

    async def beat(self, name: str, facts: Mapping[str, str | int | float]) -> None:
        await self.connection.direct("note", "beat", "beats", name, json.dumps(dict(facts)))

    async def beats(self) -> dict[str, dict[str, Any]]:
        pipe = self.client.pipeline(transaction=False)
        pipe.time()
        pipe.hgetall(self.keys.prefix + "beats")
        (seconds, micros), raw = await self.connection.ask("reading reports", pipe.execute())
        now = seconds + micros / 1e6
        return aged({text(name): text(report) for name, report in raw.items()}, now)

    async def last_beat(self, name: str) -> dict[str, Any]:
        """What one process reported last; empty when it never did."""
        call = cast("Awaitable[bytes | None]", self.client.hget(self.keys.prefix + "beats", name))
        report = await self.connection.ask("reading a report", call)
        return facts_of(text(report)) or {} if report else {}

    # Admission

    async def admit(self, expected: int, cursor_value: str, groups: Sequence[Group]) -> Admission:
        return await self._admit("train", "", expected, cursor_value, groups)

    async def admit_eval(self, version: int, expected: int, groups: Sequence[Group]) -> Admission:
        return await self._admit("eval", str(version), expected, "", groups)

    async def _admit(self, kind: Kind, version: str, expected: int, value: str, groups: Sequence[Group]) -> Admission:
        args: list[Arg] = [kind, version, expected, value, len(groups)]
        for group in groups:
            args += packed_group(group)
        _, *numbers, stopped = await self.connection.verb("admit", *args)
        cursor, admitted, live, room = map(int, numbers)
        return Admission(cursor=cursor, admitted=admitted, live=live, room=room, stopped=bool(stopped))

    async def missing(self) -> list[str]:
        return [group for group, line in (await self.books()).open.items() if not line.stream]

    async def readmit(self, groups: Sequence[Group]) -> int:
        args: list[Arg] = [len(groups)]
        for group in groups:
            args += packed_group(group)
        return int((await self.connection.verb("readmit", *args))[1])

    async def exhausted(self, cursor: int) -> None:
        await self.connection.verb("exhausted", cursor)

    async def evaluations(self) -> list[Evaluation]:
        call = self.client.hgetall(self.keys.evaluations)
        raw = await self.connection.ask("reading evaluations", cast("Awaitable[dict[bytes, bytes]]", call))
        return evaluations_of({text(k): text(v) for k, v in raw.items()})

    # Work

    async def enlist(self, slot: str) -> str:
        return f"{slot}.{(await self.connection.direct('note', 'count', 'starts', slot))[1]}"

    async def inherit(self, stream: str, reader: str, slot: str) -> list[Delivery]:
        key, role = self.keys.stream(stream), ROLE[stream]
        _, former = await self.connection.verb("former", stream, slot)
        found: list[Delivery] = []
        for name in map(text, former):
            if name == reader:
                continue
            pending = await self.connection.ask(
                "listing pending", self.client.xpending_range(key, role, "-", "+", 1_000_000, name)
            )
            if pending:
                ids = [item["message_id"] for item in pending]
                claimed = await self.connection.ask(
                    "inheriting", self.client.xclaim(key, role, reader, 0, cast("Any", ids))
                )
                found += await readable(self.connection, stream, [[b"", claimed]])
            await self.connection.verb("dismiss", stream, name)
        return found

    async def read(self, stream: str, reader: str, *, count: int, block_s: float) -> list[Delivery]:
        block = max(1, int(block_s * 1000)) if block_s > 0 else None
        return await self._entries(
            stream, lambda pipe, key: pipe.xreadgroup(ROLE[stream], reader, {key: ">"}, count=count, block=block)
        )

    async def reread(self, stream: str, reader: str) -> list[Delivery]:
        return await self._entries(
            stream, lambda pipe, key: pipe.xreadgroup(ROLE[stream], reader, {key: "0"}, count=1_000_000)
        )

    async def adopt(self, stream: str, reader: str, *, idle_s: float, count: int) -> list[Delivery]:
        await self.connection.verb("check")
        key, role, idle_ms = self.keys.stream(stream), ROLE[stream], int(idle_s * 1000)
        pending = await self.connection.ask(
            f"looking for idle entries of {stream}",
            self.client.xpending_range(key, role, "-", "+", 1_000_000, idle=idle_ms or None),
        )
        idle = [item["message_id"] for item in pending if text(item["consumer"]) != reader][:count]
        if not idle:
            return []
        claim = self.client.xclaim(key, role, reader, idle_ms, cast("Any", idle))
        claimed = await self.connection.ask(f"adopting from {stream}", claim)
        return await readable(self.connection, stream, [[b"", claimed]])

    async def _entries(self, stream: str, call: Callable[[Any, str], object]) -> list[Delivery]:
        """One reading command, behind a check that the run is still the one we entered."""
        pipe = self.client.pipeline(transaction=False)
        self.connection.queue(pipe, "check")
        call(pipe, self.keys.stream(stream))
        checked, reply = await self.connection.ask(f"reading {stream}", pipe.execute(raise_on_error=False))
        for answer in (checked, reply):
            if isinstance(answer, Exception):
                raise sort_error(answer, f"reading {stream}") from answer
        raise_refusal(f"reading {stream}", checked)
        return await readable(self.connection, stream, reply)

    async def renew(self, reader: str, deliveries: Sequence[Delivery]) -> None:
        by_stream: dict[str, list[str]] = {}
        for delivery in deliveries:
            by_stream.setdefault(delivery.stream, []).append(delivery.entry_id)
        if by_stream:
            await self.connection.verbs([("renew", [stream, reader, *ids]) for stream, ids in by_stream.items()])

    async def bodies(self, deliveries: Sequence[Delivery]) -> list[Group | None]:
        pipe = self.client.pipeline(transaction=False)
        for delivery in deliveries:
            pipe.hgetall(self.keys.group(delivery.entry.group))
        raws = await self.connection.ask("reading bodies", pipe.execute())
        return [await body_of(self.connection, one, raw) for one, raw in zip(deliveries, raws, strict=True)]

    async def settle(self, reader: str, settlements: Sequence[tuple[Delivery, Outcome]]) -> list[Verdict]:
        pipe = self.client.pipeline(transaction=False)
        for delivery, outcome in settlements:
            name, args = settlement_call(reader, delivery, outcome)
            self.connection.queue(pipe, name, *args)
        replies = await self.connection.ask("settling", pipe.execute(raise_on_error=False))
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        for reply in sorted(failed, key=lambda error: isinstance(error, OutOfMemoryError)):
            raise sort_error(reply, "settling") from reply
        for reply in replies:
            raise_refusal("settling", reply)
        return await verdicts_of(self.connection, settlements, replies)

    async def blame(self, reader: str, deliveries: Sequence[Delivery], *, max_attempts: int) -> None:
        outcomes = [
            (delivery, entries.blamed(delivery.entry, len(deliveries) == 1, max_attempts)) for delivery in deliveries
        ]
        marked = [
            (d if isinstance(o, Bury) or o.failed else replace(d, entry=entries.suspected(d.entry)), o)
            for d, o in outcomes
        ]
        await self.settle(reader, marked)

    # Versions

    async def hold(self, version: int, holder: str, seconds: float) -> Announcement | None:
        reply = await self.connection.verb("hold", version, holder, int(seconds) + 1)
        return announcement_of(reply[1]) if text(reply[0]) == "done" else None

    async def drop_hold(self, version: int, holder: str) -> None:
        call = self.client.zrem(self.keys.holds, f"{version} {holder}")
        await self.connection.ask("dropping a hold", call)

    async def wait_version(self, after: int, *, block_s: float) -> Announcement | None:
        stream = self.keys.stream("weights")
        last = await self.connection.ask("reading weights", self.client.xrevrange(stream, count=1))
        seen = cast("bytes", last[0][0]) if last else b"0"
        live = (await self.look()).live  # after `last`: a version announced in between must not be slept through
        if live is None or live.version <= after:
            call = self.client.xread({stream: seen}, count=1, block=max(1, int(block_s * 1000)))
            await self.connection.ask("waiting for a version", call)
            live = (await self.look()).live
        return live if live and live.version > after else None
