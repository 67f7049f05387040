"""`tidemill redis ARGS…`: any Redis command on the run's server, answered as redis-cli would.

For: looking at streams and hashes with stock commands and no socket path. Not for: a second client library: the reply
is printed as the server gives it. `{}` in an argument stands for the run: `XLEN tm:{}:scored`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import redis

from broker.errors import Misconfigured, Unavailable

ANSWER_S = 10.0
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def expanded(arguments: Sequence[str], run: str) -> list[str]:
    """`{}` becomes `{RUN}`, the hash tag that every key of the run carries."""
    return [argument.replace("{}", f"{{{run}}}") for argument in arguments]


def stock_command(url: str, arguments: Sequence[str]) -> str:
    """The same in redis-cli."""
    where = ["-s", url.removeprefix("unix://")] if url.startswith("unix://") else ["-u", url]
    return shlex.join(["redis-cli", *where, *arguments])


def ask(url: str, arguments: Sequence[str]) -> Any:
    """The server's reply, unparsed. Raises Misconfigured for a refused command, Unavailable for no answer."""
    client = redis.Redis.from_url(url, socket_timeout=ANSWER_S, protocol=2)
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


def shown(reply: Any, indent: str = "") -> str:
    """The reply as redis-cli prints it on a terminal."""
    if reply is None:
        return "(nil)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, bytes):
        return quoted(reply)
    if isinstance(reply, list):
        return shown_list(reply, indent) if reply else "(empty array)"
    return str(reply)


def shown_list(items: list[Any], indent: str) -> str:
    """Numbered, each level indented below its number."""
    width = len(str(len(items)))
    lines: list[str] = []
    for number, item in enumerate(items, 1):
        label = f"{number:>{width}}) "
        lines.append(label + shown(item, indent + " " * len(label)))
    return f"\n{indent}".join(lines)


def quoted(text: bytes) -> str:
    """Readable text in quotes; what is no text byte by byte."""
    try:
        return '"' + "".join(map(escaped, text.decode())) + '"'
    except UnicodeDecodeError:
        return '"' + "".join(escaped(chr(byte)) if byte < 128 else f"\\x{byte:02x}" for byte in text) + '"'


def escaped(character: str) -> str:
    plain = character if character.isprintable() else f"\\x{ord(character):02x}"
    return ESCAPES.get(character, plain)
