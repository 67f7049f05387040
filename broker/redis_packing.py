"""Commands packed for the wire by hiredis, which redis-py's asynchronous client asks for reading alone.

For: every connection of a role. Not for: what commands say. Packing in Python was a tenth of what a group costs a
reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection

Word = bytes | str | int | float


def packed(command: Iterable[Word]) -> bytes:
    """One command; a name of several words (`XINFO STREAM`) is sent as several, as redis-py does."""
    name, *arguments = command
    words = name.split() if isinstance(name, str | bytes) else [name]
    return hiredis.pack_command(cast("Any", (*words, *arguments)))  # its types know commands of one word only


class Packing:
    """Before a connection class of redis-py."""

    def pack_command(self, *command: Word) -> list[bytes]:
        return [packed(command)]

    def pack_commands(self, commands: Iterable[Iterable[Word]]) -> list[bytes]:
        return [packed(command) for command in commands]


@cache
def packing(kind: type[AbstractConnection]) -> Any:
    """The same kind of connection (TCP, TLS, socket), packing so."""
    return type(kind.__name__, (Packing, kind), {})
