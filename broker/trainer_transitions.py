"""What every verb of the trainer does to a run, as pure functions; see `transitions` for everybody else's.

For: opening, restoring, preparing, committing, announcing, forgetting. Not for: waiting, files, or which version to
write. Each verb is fenced: it raises Fenced once a newer epoch was claimed, and then nothing changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from broker import run_record
from broker.contract import Announcement, Books, Evaluation, LedgerLine, OpenGroup
from broker.errors import Broken, Fenced
from broker.messages import Delivery
from broker.run_record import MISSING, Caller, Limits, RunRecord, Stream, counted, without
from broker.streams import SCORED, WORK_STREAMS
from broker.transitions import check_entered, check_newest_trainer, closed, is_live

EVALUATION_HOLDER = "evaluation"
"""Who holds a version that is to be measured."""

INCARNATIONS_PER_EPOCH = 1_000_000
"""An opening's number starts at its epoch times this: epochs come from the store, so no number is ever given twice,
also not by a server that lost everything."""


def claim(run: RunRecord, epoch: int) -> RunRecord:
    """Fence every trainer below `epoch`. Raises Fenced when the run knows it, or a higher one, already."""
    if epoch <= run.epoch:
        raise Fenced(
            f"epoch {epoch} was claimed, but the run is at {run.epoch}; this trainer stops; a newer one is at work"
        )
    return replace(run, epoch=epoch)


def open_run(run: RunRecord, caller: Caller, limits: Limits, announcement: Announcement) -> RunRecord:
    """A new opening on this server: what there is stays, with these limits and this live version."""
    check_newest_trainer(run, caller)
    return counted(opened(run, caller, limits, announcement), {})


def restore(
    run: RunRecord,
    caller: Caller,
    limits: Limits,
    books: Books,
    ledger: Sequence[LedgerLine],
    live: Announcement,
) -> RunRecord:
    """The run of these books and lines: streams are empty, open groups are missing, evaluations are asked for anew."""
    check_newest_trainer(run, caller)
    newest = live.version, live.version + limits.staleness
    lost = {group: forgotten(each, newest) for group, each in books.open.items()}
    back = replace(
        run,
        tick=max(run.tick, books.tick),
        cursor=books.cursor,
        cursor_value=books.cursor_value,
        exhausted=books.exhausted,
        open=lost,
        counts=dict(books.counts),
        streams={name: Stream() for name in WORK_STREAMS},
        bodies=without(run.bodies, [*run.open, *lost]),
        ledger=tuple(ledger),
        versions={},
        holds={},
        evaluations={},
        dead=tuple(replace(line, forgotten=True) for line in run.dead),
    )
    return counted(opened(back, caller, limits, live), {})


def opened(run: RunRecord, caller: Caller, limits: Limits, live: Announcement) -> RunRecord:
    number = max(run.incarnation, caller.incarnation, caller.epoch * INCARNATIONS_PER_EPOCH) + 1
    return replace(
        run,
        incarnation=number,
        server=caller.server,
        limits=limits,
        live=live,
        versions={**run.versions, live.version: live},
        finished="",
    )


def forgotten(group: OpenGroup, bounds: tuple[int, int]) -> OpenGroup:
    """An open group without an entry; it will be generated anew, so only an evaluation keeps its floor."""
    floor, last = bounds if group.kind == "train" else (group.floor, group.last_version)
    return replace(group, stream=MISSING, entry_id="", floor=floor, last_version=last)


def check_trainer(run: RunRecord, caller: Caller) -> None:
    check_entered(run, caller)
    check_newest_trainer(run, caller)


def check_trainable(run: RunRecord, deliveries: Sequence[Delivery]) -> None:
    """Raises Broken unless each is the live entry of a training group, in `scored`."""
    late = [each.entry.group for each in deliveries if not is_trainable(run, each)]
    if late:
        named = ", ".join(late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
        raise Broken(
            f"{len(late)} groups of the step are no open training groups in {SCORED} ({named}); the step is dropped"
        )


def is_trainable(run: RunRecord, delivery: Delivery) -> bool:
    return delivery.stream == SCORED and is_live(run, delivery) and run.open[delivery.entry.group].kind == "train"


def prepare(run: RunRecord, caller: Caller, deliveries: Sequence[Delivery]) -> Books:
    """The books, if every delivery could be committed now."""
    check_trainer(run, caller)
    check_trainable(run, deliveries)
    return run_record.books(run)


def commit(
    run: RunRecord,
    caller: Caller,
    line: LedgerLine,
    announcement: Announcement,
    deliveries: Sequence[Delivery],
    *,
    evaluate: int = 0,
    hold_s: float = 0,
) -> RunRecord:
    """The ledger gains `line`, the version is live, its groups are closed; hearing it again changes nothing."""
    check_trainer(run, caller)
    if run.ledger and run.ledger[-1] == line:
        return run
    check_parent(run, line)
    check_line(line, announcement, deliveries)
    check_trainable(run, deliveries)
    trained = {"train.trained": len(deliveries)}
    after = counted(closed(run, deliveries) if deliveries else run, trained)
    after = replace(
        after,
        ledger=(*run.ledger, line),
        live=announcement,
        versions={**run.versions, announcement.version: announcement},
    )
    return wanted(after, caller, line.version, evaluate, hold_s) if evaluate else after


def check_parent(run: RunRecord, line: LedgerLine) -> None:
    """Raises Broken unless the line continues the live version, by number and epoch."""
    if run.live is None or (run.live.version, run.live.epoch) != (line.version - 1, line.parent_epoch):
        found = f"version {line.version} continues epoch {line.parent_epoch}, but {run.live} is live"
        raise Broken(f"{found}; nothing was committed; the trainer starts again from the ledger")


def check_line(line: LedgerLine, announcement: Announcement, deliveries: Sequence[Delivery]) -> None:
    """Raises Broken unless line, announcement and deliveries speak of one batch."""
    groups = [each.entry.group for each in deliveries]
    if len(set(groups)) != len(groups) or set(groups) != set(line.groups):
        found = f"version {line.version} names {len(line.groups)} groups, {len(set(groups))} are delivered"
        raise Broken(f"{found}; nothing was committed; line and deliveries must be one batch")
    if (announcement.version, announcement.epoch) != (line.version, line.epoch):
        raise Broken(f"{announcement} is not version {line.version} of epoch {line.epoch}; nothing was committed")


def announce(run: RunRecord, caller: Caller, announcement: Announcement) -> RunRecord:
    """The live version again, under a newer epoch."""
    check_trainer(run, caller)
    if run.live is None or announcement.version != run.live.version or announcement.epoch < run.live.epoch:
        raise Broken(f"{announcement} is not the live version {run.live}; nothing was announced; rebuild the live one")
    return replace(run, live=announcement, versions={**run.versions, announcement.version: announcement})


def want_evaluation(run: RunRecord, caller: Caller, version: int, groups: int, hold_s: float) -> RunRecord:
    """Measure `version` on so many groups; asking again changes the number, not what was measured."""
    check_trainer(run, caller)
    return wanted(run, caller, version, groups, hold_s)


def wanted(run: RunRecord, caller: Caller, version: int, groups: int, hold_s: float) -> RunRecord:
    found = run.evaluations.get(version, Evaluation(version=version, wanted=0))
    return replace(
        run,
        evaluations={**run.evaluations, version: replace(found, wanted=groups)},
        holds={**run.holds, (version, EVALUATION_HOLDER): caller.now + hold_s},
    )


def forget_versions(run: RunRecord, caller: Caller, keep: Collection[int]) -> tuple[RunRecord, list[Announcement]]:
    """Versions that are neither live, kept nor held leave the record; their files may be deleted afterwards."""
    check_trainer(run, caller)
    holds = {claim: until for claim, until in run.holds.items() if until > caller.now}
    needed = {run.live_version, *keep, *(version for version, _ in holds)}
    gone = [announcement for version, announcement in sorted(run.versions.items()) if version not in needed]
    rest = without(run.versions, [announcement.version for announcement in gone])
    return replace(run, versions=rest, holds=holds), gone


def trim_ledger(run: RunRecord, caller: Caller, below: int) -> RunRecord:
    check_trainer(run, caller)
    return replace(run, ledger=tuple(line for line in run.ledger if line.version >= below))


def finish(run: RunRecord, caller: Caller, reason: str) -> RunRecord:
    check_trainer(run, caller)
    return replace(run, finished=reason)
