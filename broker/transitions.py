"""What every verb of a worker does to a run, as pure functions; see `feeder_transitions` and `trainer_transitions`.

For: the meaning of the verbs. The memory broker runs these; the scripts of the Redis broker say the same in Lua, and a
test compares the two on random histories. Not for: waiting, time, sockets, encoding.

A verb takes the record and the caller, checks everything, and answers with a new record and its result. It raises Reset
when the caller entered another opening of the run, Fenced when a newer trainer lives; then nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from broker import entries
from broker.codec import prompt_fields, size_of
from broker.contract import Announcement, Evaluation
from broker.errors import Broken, Fenced, Reset
from broker.fields import Fields
from broker.messages import Delivery, Entry
from broker.outcomes import Bury, Verdict
from broker.run_record import (
    Caller,
    Dead,
    Held,
    RunRecord,
    Stream,
    counted,
    entries_added,
    entries_removed,
    without,
)
from broker.streams import NEXT, PROMPTS, SCORED

# ---- guards


def check_entered(run: RunRecord, caller: Caller) -> None:
    """Raises Reset unless the run is open and the caller entered this very opening."""
    if run.server != caller.server or not run.incarnation:
        raise Reset("the server lost or restarted this run; it is entered again once a trainer has opened it")
    if run.incarnation != caller.incarnation:
        raise Reset(
            f"the run is at opening {run.incarnation}, this process entered {caller.incarnation}; it enters again"
        )


def check_newest_trainer(run: RunRecord, caller: Caller) -> None:
    """Raises Fenced unless the caller claimed the run's epoch."""
    if run.epoch != caller.epoch:
        raise Fenced(
            f"epoch {run.epoch} has taken over from epoch {caller.epoch}; this trainer stops; nothing is to mend"
        )


def check_may_settle(run: RunRecord, caller: Caller, delivery: Delivery) -> None:
    """A delivery from `scored` is a trainer's, so its epoch counts."""
    check_entered(run, caller)
    if delivery.stream == SCORED:
        check_newest_trainer(run, caller)


def is_live(run: RunRecord, delivery: Delivery) -> bool:
    """Whether this entry is the one the open set names for its group."""
    opened = run.open.get(delivery.entry.group)
    return opened is not None and (opened.stream, opened.entry_id) == (delivery.stream, delivery.entry_id)


def owner(run: RunRecord, delivery: Delivery) -> str | None:
    held = run.streams[delivery.stream].pending.get(delivery.entry_id)
    return held and held.owner


def refusal(run: RunRecord, caller: Caller, delivery: Delivery, reader: str | None = None) -> Verdict | None:
    """Why the delivery cannot be settled, or None; `reader` is given where only the present owner may."""
    check_may_settle(run, caller, delivery)
    if not is_live(run, delivery):
        return "superseded"
    if reader is not None and owner(run, delivery) != reader:
        return "not_owner"
    return None


# ---- reading


def read(run: RunRecord, caller: Caller, stream: str, reader: str, count: int) -> tuple[RunRecord, list[Delivery]]:
    """The oldest undelivered entries, now pending for `reader`."""
    check_entered(run, caller)
    return taken_by(run, caller, stream, reader, list(run.streams[stream].undelivered)[:count])


def reread(run: RunRecord, caller: Caller, stream: str, reader: str) -> tuple[RunRecord, list[Delivery]]:
    """Everything pending for `reader`, young again."""
    check_entered(run, caller)
    pending = run.streams[stream].pending
    return taken_by(run, caller, stream, reader, in_order(i for i, held in pending.items() if held.owner == reader))


def adopt(
    run: RunRecord, caller: Caller, stream: str, reader: str, idle_s: float, count: int
) -> tuple[RunRecord, list[Delivery]]:
    """The oldest entries that other readers hold and did not renew for `idle_s`, now pending for `reader`."""
    check_entered(run, caller)
    pending = run.streams[stream].pending
    idle = (i for i, held in pending.items() if held.owner != reader and caller.now - held.since >= idle_s)
    return taken_by(run, caller, stream, reader, in_order(idle)[:count])


def enlist(run: RunRecord, slot: str) -> tuple[RunRecord, str]:
    """A reader's name that no earlier start of the slot had."""
    start = run.starts.get(slot, 0) + 1
    return replace(run, starts={**run.starts, slot: start}), f"{slot}.{start}"


def inherit(run: RunRecord, caller: Caller, stream: str, reader: str, slot: str) -> tuple[RunRecord, list[Delivery]]:
    """What other starts of the slot hold, now pending for `reader`, young or not: they are dead."""
    check_entered(run, caller)
    owners = {entry_id: held.owner for entry_id, held in run.streams[stream].pending.items()}
    former = (i for i, owner in owners.items() if owner != reader and owner.rpartition(".")[0] == slot)
    return taken_by(run, caller, stream, reader, in_order(former))


def renew(run: RunRecord, caller: Caller, reader: str, deliveries: Sequence[Delivery]) -> RunRecord:
    """Those of our pending entries that are still ours are young again."""
    check_entered(run, caller)
    for delivery in deliveries:
        if owner(run, delivery) == reader:
            run, _ = taken_by(run, caller, delivery.stream, reader, [delivery.entry_id])
    return run


def taken_by(
    run: RunRecord, caller: Caller, stream: str, reader: str, entry_ids: Sequence[str]
) -> tuple[RunRecord, list[Delivery]]:
    if not entry_ids:
        return run, []
    here = run.streams[stream]
    taken = {entry_id: entry for entry_id in entry_ids if (entry := here.entry(entry_id))}
    held = {entry_id: Held(entry=entry, owner=reader, since=caller.now) for entry_id, entry in taken.items()}
    after = Stream(undelivered=without(here.undelivered, taken), pending={**here.pending, **held})
    deliveries = [Delivery(stream=stream, entry_id=entry_id, entry=entry) for entry_id, entry in taken.items()]
    return replace(run, streams={**run.streams, stream: after}), deliveries


def in_order(entry_ids: Iterable[str]) -> list[str]:
    return sorted(entry_ids, key=lambda entry_id: int(entry_id.partition("-")[0]))


# ---- settling


def forward(
    run: RunRecord, caller: Caller, delivery: Delivery, entry: Entry, fields: Fields
) -> tuple[RunRecord, Verdict]:
    """`entry` in the next stream, this stage's `fields` in the body. Whoever comes first wins, present owner or not."""
    if delivery.stream not in NEXT:
        raise Broken(
            f"{delivery.entry.group} was forwarded from {delivery.stream}, which nothing follows; nothing was done"
        )
    if verdict := refusal(run, caller, delivery):
        return run, verdict
    after = entries_added(entries_removed(run, delivery.stream, [delivery.entry_id]), NEXT[delivery.stream], [entry])
    body = {**run.bodies.get(entry.group, {}), **fields}
    return replace(counted(after, {}), bodies={**run.bodies, entry.group: body}), "done"


def retire(
    run: RunRecord, caller: Caller, delivery: Delivery, reason: str, tally: Mapping[str, float]
) -> tuple[RunRecord, Verdict]:
    """The group is closed for `reason`; an evaluation group adds `tally` to its version's evaluation."""
    if verdict := refusal(run, caller, delivery):
        return run, verdict
    opened = run.open[delivery.entry.group]
    after = counted(closed(run, [delivery]), {f"{opened.kind}.retired.{reason}": 1})
    if opened.kind == "eval" and tally:
        after = tallied(after, opened.floor, tally)
    return after, "done"


def bury(run: RunRecord, caller: Caller, reader: str, delivery: Delivery, reason: str) -> tuple[RunRecord, Verdict]:
    """The group is dead: its entry lies in `dead`, its body stays."""
    if verdict := refusal(run, caller, delivery, reader):
        return run, verdict
    body, buried = run.bodies.get(delivery.entry.group, {}), run.open[delivery.entry.group]
    after = counted(closed(run, [delivery]), {f"{buried.kind}.buried": 1})
    if buried.kind == "eval":
        after = wanting_less(after, buried.floor)
    bodies = {**after.bodies, delivery.entry.group: body}
    line = Dead(entry=delivery.entry, reason=reason, stage=delivery.stream, id=f"{run.next_entry}-0")
    return replace(after, bodies=bodies, dead=(*run.dead, line), next_entry=run.next_entry + 1), "done"


def release(
    run: RunRecord, caller: Caller, reader: str, delivery: Delivery, *, failed: bool
) -> tuple[RunRecord, Verdict]:
    """A new entry in the same stream; a failure counts as an attempt, except a trainer's, which blames no group."""
    if verdict := refusal(run, caller, delivery, reader):
        return run, verdict
    blamed = failed and delivery.stream != SCORED
    return moved(run, delivery, delivery.stream, entries.released(delivery.entry, failed=blamed)), "done"


def recycle(run: RunRecord, caller: Caller, reader: str, delivery: Delivery) -> tuple[RunRecord, Verdict]:
    """A new entry in `prompts` with a new floor; rollouts and scores are forgotten."""
    if verdict := refusal(run, caller, delivery, reader):
        return run, verdict
    group = delivery.entry.group
    fields, (floor, last) = prompt_fields(run.bodies.get(group, {})), renewed_bounds(run, group)
    entry = entries.recycled(delivery.entry, floor=floor, last_version=last, size=size_of(fields))
    return replace(moved(run, delivery, PROMPTS, entry), bodies={**run.bodies, group: fields}), "done"


def blame(run: RunRecord, caller: Caller, reader: str, deliveries: Sequence[Delivery], max_attempts: int) -> RunRecord:
    """A process died with these in hand, now `reader`'s: one alone counts as an attempt, several are suspected."""
    for delivery in deliveries:
        if refusal(run, caller, delivery, reader):
            continue
        fate = entries.blamed(delivery.entry, len(deliveries) == 1, max_attempts)
        if delivery.stream == SCORED:
            run, _ = release(run, caller, reader, delivery, failed=False)
        elif isinstance(fate, Bury):
            run, _ = bury(run, caller, reader, delivery, fate.reason)
        elif fate.failed:
            run, _ = release(run, caller, reader, delivery, failed=True)
        else:
            run = moved(run, delivery, delivery.stream, entries.suspected(delivery.entry))
    return run


def renewed_bounds(run: RunRecord, group: str) -> tuple[int, int]:
    """Floor and last version of an open group that starts again: an evaluation keeps the version it measures."""
    opened = run.open[group]
    if opened.kind == "eval":
        return opened.floor, opened.last_version
    return run.live_version, run.live_version + run.limits.staleness


def moved(run: RunRecord, delivery: Delivery, stream: str, entry: Entry) -> RunRecord:
    return counted(entries_added(entries_removed(run, delivery.stream, [delivery.entry_id]), stream, [entry]), {})


def closed(run: RunRecord, deliveries: Sequence[Delivery]) -> RunRecord:
    """These groups, all from one stream, leave the open set; their entries are settled, their bodies deleted."""
    groups = [delivery.entry.group for delivery in deliveries]
    after = entries_removed(run, deliveries[0].stream, (delivery.entry_id for delivery in deliveries))
    return replace(after, open=without(run.open, groups), bodies=without(run.bodies, groups))


def wanting_less(run: RunRecord, version: int) -> RunRecord:
    """A buried evaluation group will never be measured, so its evaluation does not wait for it."""
    found = run.evaluations.get(version, Evaluation(version=version, wanted=0))
    return replace(run, evaluations={**run.evaluations, version: replace(found, wanted=found.wanted - 1)})


def tallied(run: RunRecord, version: int, tally: Mapping[str, float]) -> RunRecord:
    found = run.evaluations.get(version, Evaluation(version=version, wanted=0))
    sums = {**found.tally, **{name: found.tally.get(name, 0.0) + value for name, value in tally.items()}}
    return replace(run, evaluations={**run.evaluations, version: replace(found, tally=sums)})


# ---- versions


def hold(
    run: RunRecord, caller: Caller, version: int, holder: str, seconds: float
) -> tuple[RunRecord, Announcement | None]:
    """`holder` keeps the version's files until the claim expires; None when they may be gone already."""
    check_entered(run, caller)
    announcement = run.versions.get(version)
    if announcement is None:
        return run, None
    return replace(run, holds={**run.holds, (version, holder): caller.now + seconds}), announcement


def drop_hold(run: RunRecord, version: int, holder: str) -> RunRecord:
    """Whoever lets go is let go, whatever opening it entered."""
    return replace(run, holds=without(run.holds, [(version, holder)]))
