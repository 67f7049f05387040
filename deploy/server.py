"""The server a run talks to: its own embedded one, or a given one that is checked before anything starts.

For: an address that works, kept working. Not for: what is said over it (`broker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import redis.asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from broker import embedded_server
from broker.address import PASSWORD_FILE_VARIABLE, for_client, without_password
from broker.errors import Broken, Misconfigured
from broker.redis_connection import refuses
from broker.settings import BrokerSection, broker_url
from deploy.asking import ANSWER_S

EMBEDDED = "embedded"
OLDEST = (7, 0)
"""Redis version whose commands we use; every Valkey has them."""
DEATHS_A_MINUTE = 5
"""An embedded server that dies more often is not started again."""


class RunServer:
    """The server of one run folder."""

    def __init__(self, folder: Path, settings: BrokerSection) -> None:
        self.data = folder / "redis"
        self.settings = settings
        self.given = broker_url(settings)
        self.deaths: deque[float] = deque()

    @property
    def is_embedded(self) -> bool:
        return self.given == EMBEDDED

    async def open(self) -> str:
        """Its address, once it answers. Raises Misconfigured for a given server that cannot be used."""
        if self.is_embedded:
            return embedded_server.ensure(self.data, self.settings.maxmemory_mb, tied=True)
        await check_given_server(self.given)
        return self.given

    def keep(self, now: float) -> bool:
        """Start the embedded server again if it died; True when that was so. Raises Broken when it dies too often."""
        if not self.is_embedded or embedded_server.pid(self.data) is not None:
            return False
        self.deaths.append(now)
        while now - self.deaths[0] > 60:
            self.deaths.popleft()
        if len(self.deaths) > DEATHS_A_MINUTE:
            raise Broken(
                f"the embedded server died {len(self.deaths)} times within a minute; the run stops, its data stays; "
                f"see {self.data}/server.log"
            )
        embedded_server.ensure(self.data, self.settings.maxmemory_mb, tied=True)
        return True

    def close(self) -> None:
        """End the embedded server; a given one is its owner's."""
        if self.is_embedded:
            embedded_server.stop(self.data)


@contextlib.contextmanager
def reachable(folder: Path, settings: BrokerSection) -> Generator[str]:
    """The address of a run's server for a look: an embedded one that is down is started for as long as that takes."""
    given = broker_url(settings)
    if given != EMBEDDED:
        yield given
        return
    with embedded_server.serving(folder / "redis", settings.maxmemory_mb) as url:
        yield url


async def check_given_server(url: str) -> None:
    """Raises Misconfigured when the server is unreachable, too old, or would throw work away."""
    shown = without_password(url)
    client = redis_asyncio.Redis.from_url(
        for_client(url), socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
    )
    try:
        async with asyncio.timeout(ANSWER_S), client:
            info = await client.info()
    except (RedisError, OSError, TimeoutError) as error:
        if refuses(error):
            raise Misconfigured(
                f"[broker] url = {shown} refuses who we say we are ({error.__cause__ or error}); nothing was started; "
                f"correct the name in the address and the password there or in the file that {PASSWORD_FILE_VARIABLE} "
                "names"
            ) from None
        raise Misconfigured(
            f"[broker] url = {shown} does not answer within {ANSWER_S:g} s ({type(error).__name__}: {error}); "
            'nothing was started; start that server, correct the address, or set broker.url = "embedded"'
        ) from None
    if problem := unfit(info):
        raise Misconfigured(f"[broker] url = {shown}: {problem}")


def unfit(info: Mapping[str, Any]) -> str:
    """Why a server that says this about itself cannot carry a run; empty when it can."""
    version = str(info.get("redis_version", "0"))
    parts = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if "valkey_version" not in info and parts < OLDEST:
        return f"Redis {version} is too old; nothing was started; 7.0 or newer, or any Valkey, is needed"
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        return (
            f"its maxmemory-policy is {policy}, which deletes work when memory is full; nothing was started; "
            "set it with `CONFIG SET maxmemory-policy noeviction`"
        )
    return ""
