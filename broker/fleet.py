"""The records of a fleet of slots: where each slot is wanted, what it says, who may move slots, which run is served.

For: slot supervisors, schedulers, and people who look or pin. Not for: a run's work (`redis_broker`); deciding
(`scheduler`). Keys are `tm:{FLEET}:…`, one hash tag, apart from every run's.

A slot's record carries an epoch that each change raises, by compare-and-set: who decided on an older picture is
refused. A scheduler also shows its lease; a person does not need one, and what a person pinned no scheduler moves.
Its hosts are numbered: once a supervisor has taken a slot over, the ones before it are fenced.
Doorbells may be lost, records are not: a supervisor reads its own every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, Self, cast

from broker.address import without_password
from broker.errors import Fenced
from broker.redis_connection import Arg, RedisConnection, text
from broker.reports import aged

FLEET = "fleet"
"""Name of the fleet when none is given."""
FLEET_VARIABLE = "TIDEMILL_FLEET"
"""Environment variable that names it, for workers, schedulers and commands."""
DECISIONS_KEPT = 10_000
MOVES_KEPT_S = 7200
"""Moves of busy slots that a scheduler ordered are remembered for so long."""

Answer = Literal["done", "stale", "fenced", "pinned", "full"]
Pin = Literal["pin", "unpin", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A slot's record."""

    pool: str = ""
    """Empty: it shall serve nobody."""
    epoch: int = 0
    pinned: bool = False
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What became of an order."""

    answer: Answer
    pool: str
    """Of the record now; for `fenced` who leads, for `full` the slots that have it."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to move slots, while it lasts."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The run a fleet works for."""

    run: str
    folder: str
    url: str
    """Of the server, as whoever asks reaches it; the record itself says it without a password."""
    asked: str = ""
    """Which time somebody asked for it: a run that has ended goes on when it is asked for anew."""


class Fleet:
    """One fleet's records on one server. Every call may raise Unavailable."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self.client = connection.client
        self.prefix = connection.keys.prefix

    @classmethod
    def at(cls, url: str, name: str = FLEET) -> Self:
        """Not yet connected: the first call connects."""
        return cls(RedisConnection.open(url, name))

    @classmethod
    async def connect(cls, url: str, name: str = FLEET) -> Self:
        fleet = cls.at(url, name)
        await fleet.ask(f"connecting to {without_password(url)}", fleet.client.ping())
        return fleet

    async def close(self) -> None:
        await self.connection.close()

    # Slots

    async def assign(
        self,
        slot: str,
        pool: str,
        *,
        seen: int,
        reason: str,
        by: str,
        lease: Lease | None = None,
        pin: Pin = "",
        idle: bool = False,
        most: int | None = None,
        epoch: int | None = None,
    ) -> Assigned:
        """Want `slot` in `pool`, if its record still has the epoch `seen` and fewer than `most` other slots are wanted
        there. Without a lease it is a person's order; one for an idle slot does not count among `moves`. The record
        gets the next epoch, or `epoch`.
        """
        rules: list[Arg] = [pin, reason, by, 0 if idle else MOVES_KEPT_S, "" if most is None else most, epoch or ""]
        leader = (lease.holder, str(lease.epoch)) if lease else ("", "")
        reply = await self.script("assign", slot, pool, seen, *leader, *rules)
        return Assigned(answer=cast("Answer", text(reply[0])), pool=text(reply[1]), epoch=int(text(reply[2]) or 0))

    async def host(self, slot: str) -> int:
        """A supervisor takes the slot over: its number among the slot's hosts. Those before it are fenced now."""
        return int(await self.ask("taking a slot over", self.client.hincrby(f"{self.prefix}slot:{slot}", "host", 1)))

    async def offer(self, slot: str, pool: str, epoch: int, host: int = 0) -> Wanted:
        """A supervisor's word on what it obeys; the record, which is this when the server knew less. Raises Fenced."""
        reply = await self.script("offer", slot, pool, epoch, host)
        raise_fenced(slot, reply)
        return wanted_of(pairs(reply[1]))

    async def wanted(self, slot: str) -> Wanted:
        raw = await self.ask("reading a slot", self.client.hgetall(f"{self.prefix}slot:{slot}"))
        return wanted_of(decoded(raw))

    async def records(self) -> dict[str, Wanted]:
        """Every slot's record."""
        names = await self.slots()
        pipe = self.client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(f"{self.prefix}slot:{name}")
        raws = await self.ask("reading slots", pipe.execute())
        return {name: wanted_of(decoded(raw)) for name, raw in zip(names, raws, strict=True)}

    async def slots(self) -> list[str]:
        raw = await self.ask("listing slots", self.client.smembers(self.prefix + "slots"))
        return sorted(text(name) for name in raw)

    async def forget(self, slot: str) -> None:
        """A slot that will not come back."""
        pipe = self.client.pipeline(transaction=True)
        pipe.srem(self.prefix + "slots", slot)
        pipe.delete(f"{self.prefix}slot:{slot}")
        pipe.hdel(self.prefix + "said", slot)
        await self.ask("forgetting a slot", pipe.execute())

    # What supervisors say

    async def say(self, slot: str, facts: Mapping[str, Any], host: int = 0) -> None:
        """A supervisor's report; it carries the server's time. Raises Fenced."""
        seconds, micros = await self.ask("reading the clock", self.client.time())
        said = json.dumps({**facts, "at": seconds + micros / 1e6})
        raise_fenced(slot, await self.script("say", slot, said, host))

    async def said(self) -> dict[str, dict[str, Any]]:
        """Last report of each slot, `age_s` old."""
        pipe = self.client.pipeline(transaction=False)
        pipe.time()
        pipe.hgetall(self.prefix + "said")
        (seconds, micros), raw = await self.ask("reading reports", pipe.execute())
        now = seconds + micros / 1e6
        return aged({text(slot): text(report) for slot, report in raw.items()}, now)

    # The scheduler

    async def lead(self, holder: str, lease_s: float) -> Lease | str:
        """Take or renew the right to move slots; else the name of who has it."""
        reply = await self.script("lead", holder, int(lease_s * 1000))
        return Lease(holder=holder, epoch=int(reply[1])) if text(reply[0]) == "done" else text(reply[1])

    async def resign(self, holder: str) -> None:
        await self.script("lead", holder, 0)

    async def moves(self, within_s: float) -> list[float]:
        """How long ago schedulers ordered moves, seconds, the oldest first: every one of the last `within_s`, at most
        `MOVES_KEPT_S`.
        """
        pipe = self.client.pipeline(transaction=True)
        pipe.time()
        pipe.zrange(self.prefix + "moves", 0, -1, withscores=True)
        (seconds, micros), raw = await self.ask("reading moves", pipe.execute())
        ages = [seconds + micros / 1e6 - at for _, at in raw]
        return [age for age in ages if age <= within_s]

    async def note_costs(self, costs: Mapping[str, float], lease: Lease) -> bool:
        """Remember what moves to each pool cost, seconds; refused (False) when the lease is another's by now."""
        flat = [part for pool, seconds in costs.items() for part in (pool, round(seconds, 3))]
        reply = await self.script("note_costs", lease.holder, str(lease.epoch), *flat)
        return text(reply[0]) == "done"

    async def costs(self) -> dict[str, float]:
        """Pool → seconds that a move to it costs, as the schedulers so far have measured."""
        raw = await self.ask("reading move costs", self.client.hgetall(self.prefix + "costs"))
        return {text(pool): float(seconds) for pool, seconds in raw.items()}

    async def decided(self, decision: Mapping[str, Any]) -> None:
        """Append a decision to the story."""
        entry = {"at": str(decision.get("now", "")), "said": str(decision.get("sentence", ""))}
        call = self.client.xadd(
            self.prefix + "decisions",
            cast("Any", {**entry, "decision": json.dumps(decision)}),
            maxlen=DECISIONS_KEPT,
            approximate=True,
        )
        await self.ask("recording a decision", call)

    async def decisions(self, count: int = 100) -> list[dict[str, Any]]:
        """The last ones, oldest first."""
        raw = await self.ask("reading decisions", self.client.xrevrange(self.prefix + "decisions", count=count))
        return [json.loads(fields[b"decision"]) for _, fields in reversed(raw)]

    # The run

    async def serve(self, served: Served) -> None:
        """From now on the fleet works for this run."""
        facts = cast("dict[Any, Any]", recorded(served))
        await self.ask("naming the run", self.client.hset(self.prefix + "run", mapping=facts))

    async def remind(self, served: Served) -> Served:
        """Tell a server that has lost its records which run the fleet works for; the run it works for now, which is
        another when somebody named one meanwhile."""
        flat = [part for pair in recorded(served).items() for part in pair]
        return replace(Served(**pairs(await self.script("remind", *flat))), url=self.connection.url)

    async def served(self) -> Served | None:
        raw = await self.ask("reading the run", self.client.hgetall(self.prefix + "run"))
        return replace(Served(**decoded(raw)), url=self.connection.url) if raw else None

    async def script(self, name: str, *args: Arg) -> Sequence[Any]:
        call = self.connection.known(fleet_script(name), self.prefix + "slots", self.prefix, *args)
        return await self.ask(f"fleet: {name}", call)

    async def ask(self, doing: str, call: object) -> Any:
        """The client's annotations know neither which of its faces is used nor what comes back."""
        return await self.connection.ask(doing, cast("Awaitable[Any]", call))


@cache
def fleet_script(name: str) -> str:
    body = (resources.files("broker") / "scripts" / "fleet" / f"{name}.lua").read_text()
    return f"#!lua flags=allow-oom\n{body}"


def recorded(served: Served) -> dict[str, str]:
    """As it stands on the server, where others read it."""
    return asdict(replace(served, url=without_password(served.url)))


def raise_fenced(slot: str, reply: Sequence[Any]) -> None:
    """Raises Fenced when the reply to a supervisor says that another one hosts its slot."""
    if text(reply[0]) == "fenced":
        now = json.loads(reply[1]).get("node") or "another worker"
        raise Fenced(
            f"slot {slot} is hosted by {now} now; this worker ends, and its controller with it; to have the slot here "
            "again stop that one and start this one anew"
        )


def decoded(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    return {text(k): text(v) for k, v in raw.items()}


def pairs(flat: Sequence[Any]) -> dict[str, str]:
    return {text(flat[at]): text(flat[at + 1]) for at in range(0, len(flat), 2)}


def wanted_of(raw: Mapping[str, str]) -> Wanted:
    return Wanted(
        pool=raw.get("pool", ""),
        epoch=int(raw.get("epoch", 0)),
        pinned=bool(raw.get("pinned")),
        reason=raw.get("reason", ""),
        by=raw.get("by", ""),
    )
