"""`tidemill redis ARGS…`: any Redis command on the run's server, without a socket path.

For: looking at streams and hashes with stock commands. Not for: a second client library, or how the reply is written
down (`redis_reply`). `{}` in an argument stands for the run (`XLEN tm:{}:scored`), `{group}` for an open group's id
(`HGETALL tm:{}:group:{group}`), `{fleet}` for the fleet that works for it (`HGETALL tm:{fleet}:said`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import redis

from broker.address import PASSWORD_FILE_VARIABLE, has_password
from broker.errors import Misconfigured
from deploy.asking import asking, looking_client
from deploy.inspection import Records, open_groups
from deploy.slot_crew import fleet_of

GROUP = "{group}"
FLEET = "{fleet}"
FILES = {"ssl_ca_certs": "--cacert", "ssl_certfile": "--cert", "ssl_keyfile": "--key"}
"""Of an address, in redis-cli's words."""


def words_for(url: str, run: str, arguments: Sequence[str]) -> list[str]:
    """The command with its placeholders filled in. Raises Misconfigured when no group is open to be named."""
    names_a_group = any(GROUP in argument for argument in arguments)
    return expanded(arguments, run, an_open_group(url, run) if names_a_group else "")


def an_open_group(url: str, run: str) -> str:
    """The newest of those that came furthest: it has most to show, and time to be looked at."""
    rows = open_groups(Records.reached(url, run))
    if not rows:
        raise Misconfigured(
            f"{GROUP}: no group of {run} is open; nothing was asked; give an id instead, or look while the run lives"
        )
    return rows[-1]["group"]


def expanded(arguments: Sequence[str], run: str, group: str = "") -> list[str]:
    """`{}` becomes `{RUN}`, the hash tag that every key of the run carries, `{fleet}` that of its fleet's keys, and
    `{group}` the group's id.
    """
    fleet = f"{{{fleet_of(run)}}}"
    return [argument.replace(GROUP, group).replace(FLEET, fleet).replace("{}", f"{{{run}}}") for argument in arguments]


def stock_command(url: str, arguments: Sequence[str]) -> str:
    """The same for redis-cli, which valkey-cli takes too; `-3` names the parts of a reply. A password is not shown."""
    asked = "REDISCLI_AUTH=… " if has_password(url) or os.environ.get(PASSWORD_FILE_VARIABLE) else ""
    return asked + shlex.join(["redis-cli", "-3", *stock_place(url), *arguments])


def stock_place(url: str) -> list[str]:
    """Where the server is, in redis-cli's words: in an address it would take an account's name for a password."""
    parts, asked = urlsplit(url), dict(parse_qsl(urlsplit(url).query))
    account = ["--user", parts.username] if parts.username else []
    if parts.scheme == "unix":
        return ["-s", parts.path, *account]
    if parts.scheme == "redis" and not account:
        return ["-u", urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))]
    files = [word for name, flag in FILES.items() if name in asked for word in (flag, asked[name])]
    tls = ["--tls", *files] if parts.scheme == "rediss" else []
    place = ["-h", str(parts.hostname), "-p", str(parts.port or 6379), "-n", parts.path.strip("/") or "0"]
    return [*place, *account, *tls]


def ask(url: str, arguments: Sequence[str]) -> Any:
    """The server's reply, unparsed. Raises Misconfigured for a refused command, Unavailable for no answer."""
    client = looking_client(url, protocol=3)
    try:
        with asking(url):
            return answered(client, arguments)
    finally:
        client.close()


def answered(client: redis.Redis, arguments: Sequence[str]) -> Any:
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*arguments)
        return connection.read_response()
    except redis.ResponseError as error:
        raise Misconfigured(
            f"the server refused {shlex.join(arguments)}: {error}; nothing was changed; correct the command, or ask "
            "with an account that may"
        ) from None
