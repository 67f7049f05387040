"""What every verb of the feeder does to a run, as pure functions; see `transitions` for what they have in common.

For: how groups enter, and enter again after a restore. Not for: prompts, encoding, or how far the source has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker import entries
from broker.codec import size_of
from broker.contract import Admission
from broker.errors import Broken
from broker.fields import Fields
from broker.messages import Group, Kind
from broker.run_record import MISSING, Caller, RunRecord, counted, entries_added
from broker.streams import PROMPTS
from broker.transitions import check_entered, renewed_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A group to admit, with its body already encoded."""

    group: Group
    fields: Fields


def admit(
    run: RunRecord, caller: Caller, expected: int, cursor_value: str, offers: Sequence[Offer]
) -> tuple[RunRecord, Admission]:
    """The prefix that has room enters, if the cursor is `expected`. Raises Broken when one of it is open already."""
    check_entered(run, caller)
    taken = offers[: room(run, "train")] if run.cursor == expected else offers[:0]
    if not taken:
        return run, answer(run, "train", run.cursor)
    check_new(run, taken)
    bounds = run.live_version, run.live_version + run.limits.staleness
    after = replace(
        counted(entered(run, taken, [bounds] * len(taken)), {"train.admitted": len(taken)}),
        cursor=run.cursor + len(taken),
        cursor_value=cursor_value if len(taken) == len(offers) else run.cursor_value,
        exhausted=False,
    )
    return after, answer(after, "train", after.cursor, len(taken))


def room(run: RunRecord, kind: Kind) -> int:
    """Places for new groups."""
    return 0 if stopped(run, kind) else run.room(kind)


def stopped(run: RunRecord, kind: Kind) -> bool:
    """With too many groups buried nothing new is trained on; what is trained can still be measured."""
    return kind == "train" and run.stopped


def answer(run: RunRecord, kind: Kind, cursor: int, admitted: int = 0) -> Admission:
    return Admission(
        cursor=cursor, admitted=admitted, live=run.live_version, room=room(run, kind), stopped=stopped(run, kind)
    )


def check_new(run: RunRecord, offers: Sequence[Offer]) -> None:
    """Raises Broken when a group is open already, or offered twice: the books could not tell the two apart."""
    seen = set(run.open)
    for group in (offer.group.id for offer in offers):
        if group in seen:
            raise Broken(f"{group} is open already; nothing was admitted; the feeder must give each prompt its own id")
        seen.add(group)


def admit_eval(
    run: RunRecord, caller: Caller, version: int, expected: int, offers: Sequence[Offer]
) -> tuple[RunRecord, Admission]:
    """The same for the evaluation of `version`, which must be wanted; groups a restore left open are passed over."""
    check_entered(run, caller)
    wanted = run.evaluations.get(version)
    cursor = wanted.admitted if wanted else 0
    taken = offers[: room(run, "eval")] if cursor == expected else offers[:0]
    if not wanted or not taken:
        return run, answer(run, "eval", cursor)
    new = [offer for offer in taken if offer.group.id not in run.open]
    after = counted(entered(run, new, [(version, version)] * len(new)), {"eval.admitted": len(new)})
    progress = replace(wanted, admitted=cursor + len(taken))
    after = replace(after, evaluations={**run.evaluations, version: progress})
    return after, answer(after, "eval", progress.admitted, len(taken))


def readmit(run: RunRecord, caller: Caller, offers: Sequence[Offer]) -> tuple[RunRecord, int]:
    """Missing groups get an entry again: a training group a new floor, an evaluation group the version it measures."""
    check_entered(run, caller)
    back = [offer for offer in offers if (opened := run.open.get(offer.group.id)) and opened.stream == MISSING]
    if not back:
        return run, 0
    after = entered(run, back, [renewed_bounds(run, offer.group.id) for offer in back])
    return counted(after, {}), len(back)


def entered(run: RunRecord, offers: Sequence[Offer], bounds: Sequence[tuple[int, int]]) -> RunRecord:
    """Bodies and first entries of these groups, with their (floor, last version)."""
    firsts = [
        entries.admitted(offer.group, floor=floor, last_version=last, size=size_of(offer.fields))
        for offer, (floor, last) in zip(offers, bounds, strict=True)
    ]
    bodies = {**run.bodies, **{offer.group.id: offer.fields for offer in offers}}
    return replace(entries_added(run, PROMPTS, firsts), bodies=bodies)


def exhausted(run: RunRecord, caller: Caller, cursor: int) -> RunRecord:
    """No prompts after `cursor`; a word about another cursor is an old feeder's and changes nothing."""
    check_entered(run, caller)
    if run.cursor != cursor or run.exhausted:
        return run
    return replace(counted(run, {}), exhausted=True)
