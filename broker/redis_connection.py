"""One process's connection to the server: scripts, error kinds, deadlines.

For: what all verbs share. Not for: the verbs (`redis_broker`, `redis_trainer`). The client never retries by itself: a
retried append is a duplicate, so every verb is safe to call again and callers decide.

Work scripts are loaded when the run is entered and called by digest only. The server forgets them when it restarts, so
the first call after a restart answers NOSCRIPT, which is Reset: no verb can slip into a run that no trainer has looked
into. The run's name is part of each script's text, so another run on the same server does not load ours.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any, TypeVar, cast

import redis.asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from broker.address import for_client
from broker.errors import Backpressure, Broken, Fenced, Misconfigured, Refused, Reset, TidemillError, Unavailable
from broker.redis_packing import packing
from broker.streams import Keys

REFUSED_WHEN_FULL = {"admit", "readmit", "forward_into_rollouts", "revive"}
"""Everything else runs on a full server too (`allow-oom`): a full server drains."""

ENTERED = {
    "admit",
    "readmit",
    "forward",
    "forward_into_rollouts",
    "retire",
    "bury",
    "release",
    "renew",
    "refuse",
    "dismiss",
    "check",
    "former",
    "prepare",
    "commit",
    "announce",
    "hold",
    "forget",
    "fenced_set",
    "exhausted",
    "revive",
    "drop",
}
"""Verbs that carry the incarnation; `claim` and `open` are a trainer's way in."""

REFUSING = (AuthenticationError, AuthorizationError, NoPermissionError)

T = TypeVar("T")
Arg = bytes | str | int | float


@cache
def script_text(name: str, run: str) -> str:
    """The whole text of one verb's script."""
    folder = resources.files("broker") / "scripts"
    flags = "" if name in REFUSED_WHEN_FULL else " flags=allow-oom"
    own = (folder / f"{'forward' if name == 'forward_into_rollouts' else name}.lua").read_text()
    entered = (folder / "entered.lua").read_text() if name in ENTERED else ""
    return f"#!lua{flags}\n-- {name} of run {run}\n{(folder / 'prelude.lua').read_text()}\n{entered}\n{own}"


@cache
def digest_of(source: str) -> str:
    """By which a server knows a script."""
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def refuses(error: BaseException) -> bool:
    """Whether a server does not take us for who we say we are; the client wraps some of these."""
    return any(isinstance(one, REFUSING) for one in (error, error.__cause__))


def sort_error(error: Exception, doing: str) -> TidemillError:
    """Which of our kinds a client error is."""
    if isinstance(error, NoScriptError) or "NOGROUP" in str(error) or "no such key" in str(error):
        return Reset(f"{doing}: the server has forgotten this run ({error}); entering it again")
    if isinstance(error, OutOfMemoryError):
        return Backpressure(
            f"{doing}: the server is at its memory limit; waiting until work is settled; raise maxmemory if this lasts"
        )
    if refuses(error):
        return Misconfigured(
            f"{doing}: the server refuses who we say we are ({error}); stopping, for it would say so again; put name "
            "and password of an account that may run scripts into the server's address"
        )
    if isinstance(
        error,
        RedisConnectionError | RedisTimeoutError | BusyLoadingError | ReadOnlyError | OSError | asyncio.TimeoutError,
    ):
        return Unavailable(
            f"{doing}: the server did not answer ({type(error).__name__}: {error}); trying again; check that it runs"
        )
    return Broken(
        f"{doing}: {type(error).__name__}: {error}; stopping; this is a bug or a server that is not Redis >= 7.0"
    )


class RedisConnection:
    """Client, key names and the incarnation entered."""

    def __init__(self, client: redis_asyncio.Redis, run: str, url: str = "") -> None:
        self.client = client
        self.url = url
        self.run = run
        self.keys = Keys(run)
        self.incarnation = ""
        self.digests: dict[str, str] = {}

    @classmethod
    def open(cls, url: str, run: str, *, timeout_s: float = 15.0) -> RedisConnection:
        """Not yet connected: the first call connects. `timeout_s` bounds every call, blocking reads (≤ 10 s)
        included.
        """
        client = redis_asyncio.Redis.from_url(
            for_client(url),
            protocol=2,
            legacy_responses=True,
            decode_responses=False,
            socket_timeout=timeout_s,
            socket_connect_timeout=min(timeout_s, 5.0),
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            health_check_interval=0,
        )
        client.connection_pool.connection_class = packing(client.connection_pool.connection_class)
        return cls(client, run, url)

    async def ask(self, doing: str, call: Awaitable[T]) -> T:
        """Await one client call; its errors come out as ours."""
        try:
            return await call
        except (TimeoutError, RedisError, OSError) as error:
            raise sort_error(error, doing) from error

    async def load_scripts(self) -> None:
        pipe = self.client.pipeline(transaction=False)
        names = sorted(ENTERED)
        for name in names:
            pipe.script_load(script_text(name, self.run))
        digests = await self.ask("loading scripts", pipe.execute())
        self.digests = {name: text(digest) for name, digest in zip(names, digests, strict=True)}

    def queue(self, pipe: Any, name: str, *args: Arg) -> None:
        """Put one verb's call into a pipeline."""
        if name not in self.digests:
            raise Reset(f"{name}: the run {self.run} has not been entered; entering it")
        pipe.evalsha(self.digests[name], 1, self.keys.state, self.keys.prefix, self.incarnation, *args)

    async def verb(self, name: str, *args: Arg) -> list[Any]:
        """Run one verb; the answer after its status word. Raises Reset, Fenced, Unavailable, Backpressure, Broken."""
        return (await self.verbs([(name, args)]))[0]

    async def verbs(self, calls: Sequence[tuple[str, Sequence[Arg]]]) -> list[list[Any]]:
        """Run many verbs in one round trip, each its own transaction. The worst error is raised once all have run."""
        pipe = self.client.pipeline(transaction=False)
        for name, args in calls:
            self.queue(pipe, name, *args)
        replies = await self.ask(
            "running " + ", ".join(sorted({name for name, _ in calls})), pipe.execute(raise_on_error=False)
        )
        for (name, _), reply in zip(calls, replies, strict=True):
            if isinstance(reply, Exception):
                raise sort_error(reply, name)
            raise_refusal(name, reply)
        return [list(reply) for reply in replies]

    async def direct(self, name: str, *args: Arg) -> list[Any]:
        """Run a script that needs no entered run: a trainer's way in (`claim`, `open`), or looking (`books`)."""
        source = script_text(name, self.run)
        reply = await self.ask(name, self.known(source, self.keys.state, self.keys.prefix, self.incarnation, *args))
        raise_refusal(name, reply)
        return list(reply)

    async def known(self, source: str, key: str, *args: Arg) -> Any:
        """Run a script by its digest; a server that does not know it is sent its text, once. Only for scripts that may
        run on a server which has restarted.
        """
        words: list[Any] = [1, key, *args]
        try:
            return await self.client.evalsha(digest_of(source), *words)
        except NoScriptError:
            return await self.client.eval(source, *words)

    async def close(self) -> None:
        await self.client.aclose()


def raise_refusal(name: str, reply: Sequence[Any]) -> None:
    """Refusals that are errors; verdicts (`superseded`, `not_owner`, `gone`) pass through."""
    status = text(reply[0])
    refusal = REFUSALS.get(status)
    if refusal:
        raise refusal(name, [describe(part) for part in reply[1:]])


def describe(part: Any) -> str:
    return ", ".join(text(item) for item in cast("list[Any]", part)) if isinstance(part, list) else text(part)


REFUSALS: dict[str, Callable[[str, list[str]], TidemillError]] = {
    "reset": lambda name, _: Reset(f"{name}: the run was opened anew since we entered it; entering again"),
    "fenced": lambda name, by: Fenced(f"{name}: refused, a trainer with epoch {by[0]} has taken over; this one stops"),
    "twice": lambda name, group: Broken(
        f"{name}: group {group[0]} is open already, nothing was admitted; stopping; the prompt source gives two "
        f"prompts one id"
    ),
    "not_open": lambda name, ids: Refused(
        f"{name}: refused whole, not open any more: {ids[0]}; the step is dropped and the trainer restarts from the "
        f"ledger"
    ),
    "not_parent": lambda name, head: Refused(
        f"{name}: refused, the ledger's head is version {head[0]} of epoch {head[1]}; the trainer restarts from it"
    ),
}


def text(value: Any) -> str:
    """Of a reply; what is no UTF-8 was not written by us, and shall not end whoever reads it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
