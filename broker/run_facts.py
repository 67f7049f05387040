"""What the server knows of a run, for Prometheus: books, backlogs, version, memory.

For: the feeder's endpoint, since every run has a feeder. Not for: deciding, or looking on (`tidemill status`). Asked at
the moment of a scrape and at no other, so that a run nobody watches pays nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from broker.errors import TidemillError
from broker.measures import (
    BACKLOG,
    DEAD,
    DEAD_LIMIT,
    EVERYWHERE,
    FATES,
    FINISHED,
    LIVE,
    OPEN,
    PENDING,
    SERVER_LIMIT,
    SERVER_MEMORY,
    SERVER_REFUSED,
    SERVER_UP,
)
from broker.metrics import Facts
from broker.redis_connection import RedisConnection
from broker.reports import SILENT_S
from broker.standing import Standing, standing

ANSWER_S = 5.0
"""Longest a scrape waits for the server."""
NONE_YET = dict.fromkeys(("train.admitted", "train.trained", "train.buried", "eval.admitted", "eval.buried"), 0)
"""Counters that stand at 0 from the beginning: Prometheus cannot see the first of what begins at 1."""


def run_facts(connection: RedisConnection) -> Callable[[], Facts]:
    """Call on the loop that owns the connection; what it answers may be called from any other thread."""
    loop = asyncio.get_running_loop()

    def facts() -> Facts:
        if loop.is_closed():
            return [(SERVER_UP, {}, 0)]
        asking = asyncio.run_coroutine_threadsafe(asyncio.wait_for(standing(connection, ""), ANSWER_S), loop)
        try:
            return [*facts_of(asking.result(ANSWER_S + 1))]
        except (TidemillError, TimeoutError, RuntimeError, CancelledError):  # the last two: the loop is ending
            asking.cancel()
            return [(SERVER_UP, {}, 0)]

    return facts


def facts_of(seen: Standing) -> Facts:
    state, server = seen.state, seen.server
    yield SERVER_UP, {}, 1
    yield SERVER_MEMORY, {}, server.used_bytes
    yield SERVER_LIMIT, {}, server.limit_bytes
    yield SERVER_REFUSED, {}, server.refused
    yield LIVE, {}, state.live.version if state.live else -1
    yield FINISHED, {}, bool(state.finished)
    yield DEAD, {}, seen.dead
    yield DEAD_LIMIT, {}, state.dead_limit
    for name, stream in seen.streams.items():
        yield BACKLOG, {"stream": name}, stream.backlog
        yield PENDING, {"stream": name}, stream.pending
    yield from everywhere(seen)
    yield from fates({**NONE_YET, **seen.counts})


def everywhere(seen: Standing) -> Facts:
    """As the engines say by their heartbeats; one that is silent or has left is not waited for, one that has
    just been started was not synced.
    """
    engines = [beat for beat in seen.beats.values() if beat.get("role") == "rollout" and is_there(beat)]
    if seen.state.live and engines and all(beat.get("version") == seen.state.live.version for beat in engines):
        took = [float(beat["synced_s"]) for beat in engines if "synced_s" in beat]
        if took:
            yield EVERYWHERE, {}, max(took)


def is_there(beat: Mapping[str, Any]) -> bool:
    return not beat.get("left") and beat["age_s"] <= SILENT_S


def fates(counts: Mapping[str, int]) -> Facts:
    """`train.retired.no_signal: 3` and its like, with the names they are made of; open groups apart."""
    for name, number in counts.items():
        kind, fate, *reason = name.split(".", 2)
        if fate == "open":
            yield OPEN, {"kind": kind}, number
        else:
            yield FATES, {"kind": kind, "fate": fate, "reason": ".".join(reason)}, number
