"""The trainer's verbs on Redis: take over, open, restore, prepare, commit, announce, forget.

For: the one process that writes the ledger. Not for: reading work (inherited from `RedisBroker`). Every verb carries
the trainer's epoch; a newer trainer's claim fences them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, cast

from broker.contract import Announcement, Books, LedgerLine, RunState
from broker.messages import Delivery
from broker.outcomes import Outcome, Release, Verdict
from broker.redis_broker import RedisBroker
from broker.redis_connection import Arg, RedisConnection, text
from broker.redis_forms import announcement_of, announcement_text, books_of, settlement_call
from broker.redis_refusal import readable, verdicts_of

SCORED = "scored"


class RedisTrainer(RedisBroker):
    """See `broker.trainer_contract.TrainerBroker`."""

    def __init__(self, connection: RedisConnection) -> None:
        super().__init__(connection)
        self.epoch = 0

    async def claim(self, epoch: int) -> RunState:
        self.epoch = epoch  # before it is heard: a claim whose answer was lost is still ours, no stranger's
        await self.connection.direct("claim", epoch)
        state = await self.look()
        if state.is_open:
            await self.enter(timeout_s=10)
        return state

    async def stand_in(self) -> RunState:
        """Act under the epoch of the trainer there is, which goes on: a person's pruning needs none of its own.
        Raises Unavailable when no trainer has opened the run on this server.
        """
        state = await self.enter(timeout_s=5)
        self.epoch = state.epoch
        return state

    async def open_run(
        self, *, cap: int, groups: int, staleness: int, eval_cap: int, dead_limit: int = 0, announcement: Announcement
    ) -> RunState:
        args = await self._opening(cap, groups, staleness, eval_cap, dead_limit, announcement)
        await self.connection.direct("open", *args, "keep")
        return await self.enter(timeout_s=10)

    async def restore(
        self,
        books: Books,
        ledger: Sequence[LedgerLine],
        live: Announcement,
        *,
        cap: int,
        groups: int,
        staleness: int,
        eval_cap: int,
        dead_limit: int = 0,
    ) -> RunState:
        args = await self._opening(cap, groups, staleness, eval_cap, dead_limit, live)
        args += ["restore", books.tick, books.cursor, books.cursor_value, int(books.exhausted), len(ledger)]
        for line in ledger:
            args += [line.version, line.epoch, line.parent_epoch, line.digest, " ".join(line.groups)]
        args.append(len(books.counts))
        for name, value in books.counts.items():
            args += [name, value]
        for group, line in books.open.items():
            floor = live.version if line.kind == "train" else line.floor
            args += [
                group,
                f"- - {line.kind} {floor} {floor + staleness if line.kind == 'train' else line.last_version}",
            ]
        await self.connection.direct("open", *args)
        return await self.enter(timeout_s=10)

    async def _opening(
        self, cap: int, groups: int, staleness: int, eval_cap: int, dead_limit: int, live: Announcement
    ) -> list[Arg]:
        info = await self.connection.ask("asking the server's name", cast("Awaitable[Any]", self.client.info("server")))
        return [
            self.epoch,
            str(info["run_id"]),
            cap,
            groups,
            staleness,
            eval_cap,
            announcement_text(live),
            live.version,
            live.epoch,
            live.digest,
            dead_limit,
        ]

    async def prepare(self, deliveries: Sequence[Delivery]) -> Books:
        return books_of(await self.connection.verb("prepare", self.epoch, *pairs(deliveries)))

    async def commit(
        self,
        line: LedgerLine,
        announcement: Announcement,
        deliveries: Sequence[Delivery],
        *,
        evaluate: int = 0,
        hold_s: float = 0,
    ) -> None:
        await self.connection.verb(
            "commit",
            self.epoch,
            line.version,
            line.epoch,
            line.parent_epoch,
            line.digest,
            announcement_text(announcement),
            " ".join(line.groups),
            evaluate,
            int(hold_s),
            *pairs(deliveries),
        )

    async def announce(self, announcement: Announcement) -> None:
        await self.connection.verb(
            "announce", self.epoch, announcement.version, announcement.epoch, announcement_text(announcement)
        )

    async def settle(self, reader: str, settlements: Sequence[tuple[Delivery, Outcome]]) -> list[Verdict]:
        """As every reader's, but fenced by the epoch."""
        calls = [settlement_call(reader, delivery, blameless(outcome)) for delivery, outcome in settlements]
        replies = await self.connection.verbs([(name, self._fenced(name, args)) for name, args in calls])
        return await verdicts_of(self.connection, settlements, replies)

    async def blame(self, reader: str, deliveries: Sequence[Delivery], *, max_attempts: int) -> None:
        """A trainer's death is no group's fault: whatever it held goes back as it was."""
        await self.settle(reader, [(delivery, Release(reason="its trainer died")) for delivery in deliveries])

    def _fenced(self, name: str, args: list[Arg]) -> list[Arg]:
        place = {"retire": 4, "release": 5, "bury": 5}.get(name)
        if place is None:
            return args
        return [*args[:place], self.epoch, *args[place + 1 :]]

    async def ledger(self, *, after: int = -1) -> list[LedgerLine]:
        call = self.client.xrange(self.keys.stream("ledger"), min=f"{after + 1}-0")
        entries = await self.connection.ask("reading the ledger", cast("Awaitable[list[Any]]", call))
        return [ledger_line({text(k): text(v) for k, v in fields.items()}) for _, fields in entries]

    async def open_entries(self, groups: Sequence[str]) -> list[Delivery]:
        lines = (await self.books()).open
        known = [(group, lines[group]) for group in groups if group in lines and lines[group].stream]
        pipe = self.client.pipeline(transaction=False)
        for _, line in known:
            pipe.xrange(self.keys.stream(line.stream), min=line.entry_id, max=line.entry_id)
        replies = await self.connection.ask("reading open entries", pipe.execute()) if known else []
        found: list[Delivery] = []
        for (_, line), reply in zip(known, replies, strict=True):
            found += await readable(self.connection, line.stream, [[b"", reply]])
        return found

    async def want_evaluation(self, version: int, groups: int, *, hold_s: float) -> None:
        await self.connection.verb("fenced_set", self.epoch, "evaluation", version, groups, int(hold_s))

    async def forget_versions(
        self, keep: Sequence[int], *, now: float | None = None, dry_run: bool = False
    ) -> list[Announcement]:
        reply = await self.connection.verb("forget", self.epoch, "" if now is None else int(now), int(dry_run), *keep)
        return [announcement_of(raw) for raw in reply[1]]

    async def trim_ledger(self, below: int) -> None:
        await self.connection.verb("fenced_set", self.epoch, "trim", below)

    async def finish(self, reason: str) -> None:
        await self.connection.verb("fenced_set", self.epoch, "finish", reason)


def blameless(outcome: Outcome) -> Outcome:
    """A trainer's failure is no group's fault."""
    return replace(outcome, failed=False) if isinstance(outcome, Release) else outcome


def pairs(deliveries: Sequence[Delivery]) -> list[Arg]:
    return [part for delivery in deliveries for part in (delivery.entry.group, delivery.entry_id)]


def ledger_line(raw: dict[str, str]) -> LedgerLine:
    return LedgerLine(
        version=int(raw["version"]),
        epoch=int(raw["epoch"]),
        parent_epoch=int(raw["parent_epoch"]),
        digest=raw["digest"],
        groups=tuple(raw["groups"].split()),
    )
