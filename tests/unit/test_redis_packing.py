"""Commands are packed as redis-py packs them."""

from __future__ import annotations

import pytest
from redis.asyncio.connection import Connection, UnixDomainSocketConnection

from broker.redis_packing import Word, packed, packing

COMMANDS: list[tuple[Word, ...]] = [
    ("PING",),
    ("XINFO STREAM", "key"),
    (b"CONFIG GET", "*"),
    ("EVALSHA", "d" * 40, 1, b"key", "", b"\x00\xff\r\n", -5, 10**20, 0.1, 1e-07, 1e22, "größer"),
    ("SET", "body", b"x" * 300_000),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
def test_a_command_is_packed_as_redis_py_packs_it(command: tuple[Word, ...]) -> None:
    theirs = b"".join(Connection().pack_command(*command))
    assert packed(command) == theirs == b"".join(packing(Connection)().pack_command(*command))


def test_a_pipeline_is_packed_as_redis_py_packs_it() -> None:
    theirs, ours = Connection().pack_commands(COMMANDS), packing(Connection)().pack_commands(COMMANDS)
    assert b"".join(ours) == b"".join(theirs)


def test_every_kind_of_connection_stays_what_it_is() -> None:
    assert issubclass(packing(UnixDomainSocketConnection), UnixDomainSocketConnection)
    assert packing(Connection) is packing(Connection)
