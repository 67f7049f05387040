"""What is in a stream or a body and cannot be worked on: taken out, said, and kept where a person can look.

For: every reading and settling verb on Redis. Not for: groups that a role gives up on (`outcomes.Bury`). Left where it
is, such an entry would be in every reader's way for ever. The group whose one entry it is gets buried, and its books
say so; a stranger's entry goes to `refused` and no book changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import structlog

from broker import codec
from broker.errors import Poison
from broker.messages import Delivery, Group
from broker.outcomes import Outcome, Verdict
from broker.redis_connection import RedisConnection, text
from broker.redis_forms import deliveries_of

log = structlog.get_logger()

STRANGE = "the open set names no such entry: nobody admitted or forwarded it"


async def refuse(connection: RedisConnection, stream: str, entry_id: str, reason: str) -> None:
    """Take one entry out; one that was settled meanwhile is left alone."""
    fate, *group = map(text, await connection.verb("refuse", stream, entry_id, reason))
    if fate != "gone":
        log.error(fate, stream=stream, entry=entry_id, group=group[0] if group else "", reason=reason)


async def readable(connection: RedisConnection, stream: str, reply: Any) -> list[Delivery]:
    """The entries of a read that can be read; the others are refused."""
    found, unreadable = deliveries_of(stream, reply)
    for entry_id, reason in unreadable:
        await refuse(connection, stream, entry_id, f"Poison: {reason}")
    return found


async def body_of(connection: RedisConnection, delivery: Delivery, raw: dict[bytes, bytes]) -> Group | None:
    """The group of these fields; None once its entry is refused, for fields that cannot be read or are not there."""
    problem = "its body is not there"
    try:
        if raw:
            return codec.decode_group(delivery.entry.group, delivery.entry.kind, raw)
    except Poison as reason:
        problem = f"Poison: {reason}"
    await refuse(connection, delivery.stream, delivery.entry_id, problem)
    return None


async def verdicts_of(
    connection: RedisConnection, settlements: Sequence[tuple[Delivery, Outcome]], replies: Sequence[Any]
) -> list[Verdict]:
    """An entry that is still there although its group has another is no duplicate of ours: it is refused."""
    verdicts: list[Verdict] = [cast("Verdict", text(reply[0])) for reply in replies]
    for (delivery, _), verdict in zip(settlements, verdicts, strict=True):
        if verdict == "superseded":
            await refuse(connection, delivery.stream, delivery.entry_id, STRANGE)
    return verdicts
