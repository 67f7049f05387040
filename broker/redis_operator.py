"""A person's verbs on Redis: what becomes of buried groups.

For: `tidemill inspect dead`, which enters a run that is under way, and asking for a run that has ended. Not for: roles
(`redis_broker`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from broker import codec, entries
from broker.operator_contract import DeadGroup, DeadVerdict
from broker.redis_broker import RedisBroker
from broker.redis_connection import Arg, text
from broker.redis_forms import entry_args


class RedisOperator(RedisBroker):
    """See `broker.operator_contract.OperatorBroker`."""

    async def ask_anew(self) -> None:
        """A run that had ended goes on, as far as its settings let it: whoever works for it may start again."""
        await self.connection.ask("asking for the run anew", self.client.hdel(self.keys.state, "finished"))

    async def dead(self) -> list[DeadGroup]:
        found = await self.connection.ask("reading dead letters", self.client.xrange(self.keys.stream("dead")))
        return [dead_group(text(line), fields) for line, fields in cast("list[Any]", found)]

    async def revive(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        calls: list[tuple[str, list[Arg]]] = []
        for line in lines:
            fields = entry_args(entries.revived(line.entry, floor=0, last_version=0, size=0))
            calls.append(("revive", [line.entry.group, line.id, len(fields), *fields]))
        return await self.verdicts(calls)

    async def drop(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        return await self.verdicts([("drop", [line.entry.group, line.id]) for line in lines])

    async def verdicts(self, calls: Sequence[tuple[str, Sequence[Arg]]]) -> list[DeadVerdict]:
        return [cast("DeadVerdict", text(reply[0])) for reply in await self.connection.verbs(calls)]


def dead_group(line: str, fields: dict[bytes, bytes]) -> DeadGroup:
    """Raises Poison when the line is none of ours."""
    reason, stage = (fields.get(name, b"").decode("utf-8", "replace") for name in (b"reason", b"stage"))
    return DeadGroup(id=line, entry=codec.decode_entry(fields), reason=reason, stage=stage)
