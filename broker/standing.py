"""Where a run and its fleet stand, in one round trip that counts and never reads the open set.

For: those who look on, again and again (launcher, `status`, `top`, dashboard). Not for: roles, which enter the run
(`contract`), nor for judging what is seen. Reads only, so that it also answers on a server that refuses writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from broker.contract import RunState
from broker.fleet import Wanted, pairs, wanted_of
from broker.redis_connection import RedisConnection, text
from broker.redis_forms import run_state
from broker.reports import aged
from broker.streams import WORK_STREAMS, Keys

LOOKED_AT = 16
"""The oldest pending entries of a stream among which the most idle one is looked for."""
SECTIONS = ("server", "memory", "persistence", "replication", "errorstats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An entry that was read and is not settled."""

    entry_id: str
    group: str
    reader: str
    """In whose hands: slot or process, a dot, the number of its start."""
    idle_s: float
    """Since it was delivered or its lease renewed."""
    age_s: float
    """Since it was appended to its stream."""
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The oldest entry that nobody has read."""

    entry_id: str
    group: str
    age_s: float
    """Since it was appended to its stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStanding:
    """One work stream."""

    backlog: int = 0
    """Undelivered + pending, exact."""
    pending: int = 0
    readers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reader → how many of the pending entries it holds; those that hold none are left out."""
    idlest: Pending | None = None
    """The most idle of its oldest pending entries."""
    unread: Unread | None = None

    @property
    def undelivered(self) -> int:
        return self.backlog - self.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStanding:
    """The server, by its own account."""

    name: str = ""
    version: str = ""
    used_bytes: int = 0
    """Of what counts against the limit."""
    limit_bytes: int = 0
    """0: none."""
    policy: str = ""
    refused: int = 0
    """Writes refused for want of memory since it was started."""
    replica: bool = False
    loading: bool = False
    disk_error: str = ""
    """Why it stopped writing to disk; empty when it did not."""

    @property
    def fill(self) -> float:
        """Share of its memory limit in use; 0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStanding:
    """The fleet of slots that may serve the run; empty for a run without slots."""

    run: str = ""
    """The run it works for."""
    slots: Mapping[str, Wanted] = field(default_factory=dict[str, Wanted])
    said: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """Each slot's last report, `age_s` old."""
    leader: str = ""
    lease_left_s: float | None = None
    """Negative: for so long nobody has held it. None: nobody ever did, or the last one gave it back."""
    decision: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The scheduler's last; empty when there is none."""
    decision_age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything one look learns from the server."""

    state: RunState = field(default_factory=lambda: RunState(exists=False))
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    open: int = 0
    dead: int = 0
    """Entries of `dead`."""
    newest_dead: str = ""
    """Why the newest of them was buried."""
    streams: Mapping[str, StreamStanding] = field(default_factory=dict[str, StreamStanding])
    beats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """Each process's last report, `age_s` old."""
    server: ServerStanding = field(default_factory=ServerStanding)
    fleet: FleetStanding = field(default_factory=FleetStanding)


async def standing(connection: RedisConnection, fleet: str) -> Standing:
    """Look at the connection's run and at `fleet` on the same server. Raises Unavailable."""
    run, of_fleet = connection.keys, Keys(fleet)
    pipe = connection.client.pipeline(transaction=False)
    pipe.info(*SECTIONS)
    pipe.eval(script("standing"), 1, run.state, run.prefix, LOOKED_AT)
    pipe.eval(script("fleet/standing"), 1, of_fleet.stream("slots"), of_fleet.prefix)
    info, about_run, about_fleet = await connection.ask("looking at the run", pipe.execute())
    return standing_of(info, about_run, fleet_of(about_fleet))


@cache
def script(name: str) -> str:
    return (resources.files("broker") / "scripts" / f"{name}.lua").read_text()


def standing_of(info: Mapping[str, Any], reply: Sequence[Any], fleet: FleetStanding) -> Standing:
    time, state, counts, opened, dead, newest_dead, beats, *streams = reply
    now = seconds_of(time)
    return Standing(
        state=run_state(pairs(state), str(info["run_id"])),
        counts={name: int(number) for name, number in pairs(counts).items()},
        open=int(opened),
        dead=int(dead),
        newest_dead=pairs(newest_dead[1]).get("reason", "") if newest_dead else "",
        streams={name: stream_of(raw, now) for name, raw in zip(WORK_STREAMS, streams, strict=True)},
        beats=aged(pairs(beats), now),
        server=server_of(info),
        fleet=fleet,
    )


def stream_of(raw: Sequence[Any], now: float) -> StreamStanding:
    backlog, pending, readers, idlest, unread = raw
    return StreamStanding(
        backlog=int(backlog),
        pending=int(pending),
        readers={text(name): int(text(count)) for name, count in readers},
        idlest=pending_of(idlest, now) if idlest else None,
        unread=unread_of(unread, now) if unread else None,
    )


def pending_of(raw: Sequence[Any], now: float) -> Pending:
    entry_id, reader, idle_ms, deliveries, fields = raw
    return Pending(
        entry_id=text(entry_id),
        group=pairs(fields).get("group", ""),
        reader=text(reader),
        idle_s=int(idle_ms) / 1000,
        age_s=now - appended_at(text(entry_id)),
        deliveries=int(deliveries),
    )


def unread_of(raw: Sequence[Any], now: float) -> Unread:
    entry_id, fields = text(raw[0]), raw[1]
    return Unread(entry_id=entry_id, group=pairs(fields).get("group", ""), age_s=now - appended_at(entry_id))


def appended_at(entry_id: str) -> float:
    """Server seconds at which an entry was appended."""
    return int(entry_id.partition("-")[0]) / 1000


def server_of(info: Mapping[str, Any]) -> ServerStanding:
    limit = int(info.get("maxmemory", 0))
    return ServerStanding(
        name="valkey" if "valkey_version" in info else "redis",
        version=str(info.get("valkey_version", info.get("redis_version", ""))),
        used_bytes=int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0)),
        limit_bytes=limit,
        policy=str(info.get("maxmemory_policy", "")),
        refused=int(info.get("errorstat_OOM", {}).get("count", 0)),
        replica=info.get("role") in ("slave", "replica"),
        loading=bool(int(info.get("loading", 0))),
        disk_error=disk_error_of(info),
    )


def disk_error_of(info: Mapping[str, Any]) -> str:
    if info.get("aof_last_write_status", "ok") != "ok":
        return "its append-only file cannot be written"
    return "its last snapshot could not be written" if info.get("rdb_last_bgsave_status", "ok") != "ok" else ""


def fleet_of(reply: Sequence[Any]) -> FleetStanding:
    time, run, leader, records, said, story = reply
    now, held = seconds_of(time), pairs(leader)
    until = float(held.get("until", 0)) / 1000
    wanted = {text(records[at]): wanted_of(pairs(records[at + 1])) for at in range(0, len(records), 2)}
    return FleetStanding(
        run=text(run),
        slots=dict(sorted(wanted.items())),
        said=aged(pairs(said), now),
        leader=held.get("holder", ""),
        lease_left_s=until - now if until else None,
        decision=json.loads(pairs(story[1])["decision"]) if story else {},
        decision_age_s=now - appended_at(text(story[0])) if story else 0.0,
    )


def seconds_of(time: Sequence[Any]) -> float:
    return int(time[0]) + int(time[1]) / 1e6
