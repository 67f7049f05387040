"""`tidemill redis ARGS…`: any Redis command on the run's server, without a socket path.

For: looking at streams and hashes with stock commands. Not for: a second client library, or how the reply is written
down (`redis_reply`). `{}` in an argument stands for the run (`XLEN tm:{}:scored`), `{group}` for an open group's id
(`HGETALL tm:{}:group:{group}`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import redis

from broker.errors import Misconfigured, Unavailable
from deploy.inspection import Records, open_groups

ANSWER_S = 10.0
GROUP = "{group}"


def words_for(url: str, run: str, arguments: Sequence[str]) -> list[str]:
    """The command with its placeholders filled in. Raises Misconfigured when no group is open to be named."""
    names_a_group = any(GROUP in argument for argument in arguments)
    return expanded(arguments, run, an_open_group(url, run) if names_a_group else "")


def an_open_group(url: str, run: str) -> str:
    """The newest of those that came furthest: it has most to show, and time to be looked at."""
    rows = open_groups(Records(url, run))
    if not rows:
        raise Misconfigured(
            f"{GROUP}: no group of {run} is open; nothing was asked; give an id instead, or look while the run lives"
        )
    return rows[-1]["group"]


def expanded(arguments: Sequence[str], run: str, group: str = "") -> list[str]:
    """`{}` becomes `{RUN}`, the hash tag that every key of the run carries; `{group}` becomes the group's id."""
    return [argument.replace(GROUP, group).replace("{}", f"{{{run}}}") for argument in arguments]


def stock_command(url: str, arguments: Sequence[str]) -> str:
    """The same for redis-cli, which valkey-cli takes too; `-3` names the parts of a reply."""
    where = ["-s", url.removeprefix("unix://")] if url.startswith("unix://") else ["-u", url]
    return shlex.join(["redis-cli", "-3", *where, *arguments])


def ask(url: str, arguments: Sequence[str]) -> Any:
    """The server's reply, unparsed. Raises Misconfigured for a refused command, Unavailable for no answer."""
    client = redis.Redis.from_url(url, socket_timeout=ANSWER_S, protocol=3)
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*arguments)
        return connection.read_response()
    except redis.ResponseError as error:
        raise Misconfigured(f"the server refused {shlex.join(arguments)}: {error}; nothing was changed") from None
    except redis.RedisError as error:
        raise Unavailable(f"{shlex.join(arguments)}: no answer within {ANSWER_S:g} s ({error})") from None
    finally:
        client.close()
