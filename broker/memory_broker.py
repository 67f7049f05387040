"""The broker in one process: the transitions behind a thin asynchronous shell.

For: tests, notebooks, a whole run in one process. Not for: several processes, or surviving one. What a verb means is in
`transitions`, `feeder_transitions` and `trainer_transitions`; waiting is in
`memory_server`; here is only who calls, and encoding.

>>> server = MemoryServer()
>>> trainer, feeder = MemoryBroker(server), MemoryBroker(server)   # as many as there are roles, on one event loop
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker import dead_transitions, entries, run_record, transitions
from broker import feeder_transitions as feeding
from broker import trainer_transitions as training
from broker.codec import decode_group, encode_added, encode_prompt, size_of
from broker.contract import Admission, Announcement, Books, Evaluation, LedgerLine, RunState
from broker.errors import Unavailable
from broker.feeder_transitions import Offer
from broker.memory_server import MemoryServer
from broker.messages import Delivery, Group
from broker.operator_contract import DeadGroup, DeadVerdict
from broker.outcomes import Bury, Forward, Outcome, Recycle, Release, Retire, Verdict
from broker.run_record import Caller, Limits, RunRecord

__all__ = ["MemoryBroker", "MemoryServer"]


class MemoryBroker:
    """One process's handle on the run; it is a feeder's, worker's, version, operator and trainer broker at once."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.incarnation = 0
        self.epoch = 0

    @property
    def run(self) -> RunRecord:
        return self.server.run

    @property
    def caller(self) -> Caller:
        return Caller(server=self.server.name, incarnation=self.incarnation, epoch=self.epoch, now=self.server.clock())

    # ---- every role

    async def look(self) -> RunState:
        return run_record.look(self.run, self.server.name)

    async def enter(self, *, timeout_s: float) -> RunState:
        state = await self.server.until(self.open_state, timeout_s)
        if state is None:
            raise Unavailable(
                f"no trainer has opened the run within {timeout_s} s; this process stops; start a trainer"
            )
        self.incarnation = state.incarnation
        return state

    def open_state(self) -> RunState | None:
        state = run_record.look(self.run, self.server.name)
        return state if state.is_open else None

    async def backlog(self) -> dict[str, int]:
        return run_record.backlog(self.run)

    async def books(self) -> Books:
        return run_record.books(self.run)

    async def beat(self, name: str, facts: Mapping[str, str | int | float]) -> None:
        self.server.beats[name] = {**self.server.beats.get(name, {}), **facts, "at": self.server.clock()}

    async def beats(self) -> dict[str, dict[str, Any]]:
        now = self.server.clock()
        return {name: {**facts, "age_s": now - facts["at"]} for name, facts in self.server.beats.items()}

    async def close(self) -> None:
        """Nothing is held."""

    # ---- feeder

    async def admit(self, expected: int, cursor_value: str, groups: Sequence[Group]) -> Admission:
        run, admission = feeding.admit(self.run, self.caller, expected, cursor_value, offers(groups))
        self.server.keep(run)
        return admission

    async def admit_eval(self, version: int, expected: int, groups: Sequence[Group]) -> Admission:
        run, admission = feeding.admit_eval(self.run, self.caller, version, expected, offers(groups))
        self.server.keep(run)
        return admission

    async def evaluations(self) -> list[Evaluation]:
        return [self.run.evaluations[version] for version in sorted(self.run.evaluations)]

    async def missing(self) -> list[str]:
        return run_record.missing(self.run)

    async def readmit(self, groups: Sequence[Group]) -> int:
        run, count = feeding.readmit(self.run, self.caller, offers(groups))
        self.server.keep(run)
        return count

    async def exhausted(self, cursor: int) -> None:
        self.server.keep(feeding.exhausted(self.run, self.caller, cursor))

    # ---- worker

    async def enlist(self, slot: str) -> str:
        run, name = transitions.enlist(self.run, slot)
        self.server.keep(run)
        return name

    async def inherit(self, stream: str, reader: str, slot: str) -> list[Delivery]:
        run, deliveries = transitions.inherit(self.run, self.caller, stream, reader, slot)
        self.server.keep(run)
        return deliveries

    async def read(self, stream: str, reader: str, *, count: int, block_s: float) -> list[Delivery]:
        def take() -> list[Delivery] | None:
            run, deliveries = transitions.read(self.run, self.caller, stream, reader, count)
            self.server.keep(run)
            return deliveries or None

        return await self.server.until(take, block_s) or []

    async def reread(self, stream: str, reader: str) -> list[Delivery]:
        run, deliveries = transitions.reread(self.run, self.caller, stream, reader)
        self.server.keep(run)
        return deliveries

    async def adopt(self, stream: str, reader: str, *, idle_s: float, count: int) -> list[Delivery]:
        run, deliveries = transitions.adopt(self.run, self.caller, stream, reader, idle_s, count)
        self.server.keep(run)
        return deliveries

    async def renew(self, reader: str, deliveries: Sequence[Delivery]) -> None:
        self.server.keep(transitions.renew(self.run, self.caller, reader, deliveries))

    async def bodies(self, deliveries: Sequence[Delivery]) -> list[Group | None]:
        found = ((each.entry, self.run.bodies.get(each.entry.group)) for each in deliveries)
        return [decode_group(entry.group, entry.kind, fields) if fields else None for entry, fields in found]

    async def settle(self, reader: str, settlements: Sequence[tuple[Delivery, Outcome]]) -> list[Verdict]:
        return [self.settle_one(reader, delivery, outcome) for delivery, outcome in settlements]

    def settle_one(self, reader: str, delivery: Delivery, outcome: Outcome) -> Verdict:
        run, verdict = settled(self.run, self.caller, reader, delivery, outcome)
        self.server.keep(run)
        return verdict

    async def blame(self, reader: str, deliveries: Sequence[Delivery], *, max_attempts: int) -> None:
        self.server.keep(transitions.blame(self.run, self.caller, reader, deliveries, max_attempts))

    # ---- versions

    async def hold(self, version: int, holder: str, seconds: float) -> Announcement | None:
        run, announcement = transitions.hold(self.run, self.caller, version, holder, seconds)
        self.server.keep(run)
        return announcement

    async def drop_hold(self, version: int, holder: str) -> None:
        self.server.keep(transitions.drop_hold(self.run, version, holder))

    async def wait_version(self, after: int, *, block_s: float) -> Announcement | None:
        def newer() -> Announcement | None:
            transitions.check_entered(self.run, self.caller)
            return self.run.live if self.run.live_version > after else None

        return await self.server.until(newer, block_s)

    # ---- operator

    async def dead(self) -> list[DeadGroup]:
        return [DeadGroup(id=one.id, entry=one.entry, reason=one.reason, stage=one.stage) for one in self.run.dead]

    async def revive(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        return [self.decided(dead_transitions.revive(self.run, self.caller, line)) for line in lines]

    async def drop(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        return [self.decided(dead_transitions.drop(self.run, self.caller, line)) for line in lines]

    def decided(self, found: tuple[RunRecord, DeadVerdict]) -> DeadVerdict:
        self.server.keep(found[0])
        return found[1]

    # ---- trainer

    async def claim(self, epoch: int) -> RunState:
        self.server.keep(training.claim(self.run, epoch))
        self.epoch = epoch
        return await self.look()

    async def open_run(
        self, *, cap: int, groups: int, staleness: int, eval_cap: int, dead_limit: int = 0, announcement: Announcement
    ) -> RunState:
        limits = Limits(cap=cap, groups=groups, staleness=staleness, eval_cap=eval_cap, dead_limit=dead_limit)
        return self.opened(training.open_run(self.run, self.caller, limits, announcement))

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
        limits = Limits(cap=cap, groups=groups, staleness=staleness, eval_cap=eval_cap, dead_limit=dead_limit)
        return self.opened(training.restore(self.run, self.caller, limits, books, ledger, live))

    def opened(self, run: RunRecord) -> RunState:
        self.incarnation = run.incarnation
        self.server.keep(run)
        return run_record.look(run, self.server.name)

    async def prepare(self, deliveries: Sequence[Delivery]) -> Books:
        return training.prepare(self.run, self.caller, deliveries)

    async def commit(
        self,
        line: LedgerLine,
        announcement: Announcement,
        deliveries: Sequence[Delivery],
        *,
        evaluate: int = 0,
        hold_s: float = 0,
    ) -> None:
        self.server.keep(
            training.commit(self.run, self.caller, line, announcement, deliveries, evaluate=evaluate, hold_s=hold_s)
        )

    async def announce(self, announcement: Announcement) -> None:
        self.server.keep(training.announce(self.run, self.caller, announcement))

    async def ledger(self, *, after: int = -1) -> list[LedgerLine]:
        return [line for line in self.run.ledger if line.version > after]

    async def open_entries(self, groups: Sequence[str]) -> list[Delivery]:
        return run_record.live_entries(self.run, groups)

    async def want_evaluation(self, version: int, groups: int, *, hold_s: float) -> None:
        self.server.keep(training.want_evaluation(self.run, self.caller, version, groups, hold_s))

    async def forget_versions(
        self, keep: Sequence[int], *, now: float | None = None, dry_run: bool = False
    ) -> list[Announcement]:
        caller = self.caller if now is None else replace(self.caller, now=now)
        run, gone = training.forget_versions(self.run, caller, keep)
        if not dry_run:
            self.server.keep(run)
        return gone

    async def trim_ledger(self, below: int) -> None:
        self.server.keep(training.trim_ledger(self.run, self.caller, below))

    async def finish(self, reason: str) -> None:
        self.server.keep(training.finish(self.run, self.caller, reason))


def offers(groups: Sequence[Group]) -> list[Offer]:
    return [Offer(group=group, fields=encode_prompt(group)) for group in groups]


def settled(
    run: RunRecord, caller: Caller, reader: str, delivery: Delivery, outcome: Outcome
) -> tuple[RunRecord, Verdict]:
    """One outcome as one transition."""
    delivery = entries.traced(delivery, reader, outcome)
    match outcome:
        case Forward(group=group, added=added):
            fields = added or encode_added(delivery.stream, group)
            entry = entries.forwarded(delivery.entry, group, added=size_of(fields))
            return transitions.forward(run, caller, delivery, entry, fields)
        case Retire(reason=reason, tally=tally):
            return transitions.retire(run, caller, delivery, reason, tally)
        case Bury(reason=reason):
            return transitions.bury(run, caller, reader, delivery, reason)
        case Release(failed=failed):
            return transitions.release(run, caller, reader, delivery, failed=failed)
        case Recycle():
            return transitions.recycle(run, caller, reader, delivery)
