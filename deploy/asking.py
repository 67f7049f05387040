"""Questions to a server for a look: asked once, with a deadline, and its silence in one message.

For: commands that look, and health checks. Not for: a run's own work, which waits for its server (`broker`), or what
is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from broker.address import for_client, without_password
from broker.errors import Unavailable
from broker.redis_connection import refuses

ANSWER_S = 5.0
"""Longest a command waits for the server."""


def looking_client(url: str, **options: Any) -> redis.Redis:
    """A client that waits `ANSWER_S` once, not again and again."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(
        for_client(url), socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=once, **options
    )


@contextlib.contextmanager
def asking(url: str) -> Generator[None]:
    """Questions to a server; raises Unavailable when it does not answer one of them, or refuses it."""
    try:
        yield
    except redis.RedisError as error:
        where, what = without_password(url), f"({type(error).__name__}: {error}); nothing was changed"
        if isinstance(error, redis.ResponseError) or refuses(error):
            mend = "ask with an account that may, of a server that can"
            raise Unavailable(f"{where} refuses what it was asked {what}; {mend}") from None
        mend = "check that it runs and that this host reaches it"
        raise Unavailable(f"{where} does not answer within {ANSWER_S:g} s {what}; {mend}") from None
