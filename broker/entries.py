"""What a group's next entry says, for each way a delivery can end.

For: the values of entries, shared by every broker, and what a death means for them. Not for: appending them
(`transitions`, scripts).
`attempt` counts the whole way from admission to the end; `alone` lasts until the group gets past the stage it was in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from broker.messages import Delivery, Entry, Group, added_at
from broker.outcomes import Bury, Forward, Outcome, Release, fate_of

REASON: Final = 60
"""Characters of a reason that a trace keeps."""
STEPS: Final = 8
"""Steps that a trace keeps: the first and the newest ones; an entry stays under 1 KB."""
GAP: Final = "…"


class Step(NamedTuple):
    """One stay of a group in one stream."""

    stream: str
    at: float | None
    """When it got there, by the server's clock, seconds since 1970; None where entry ids are no times."""
    reader: str
    what: str
    """How the stay ended: `forwarded`, else `FATE: REASON` (`outcomes.fate_of`)."""


def traced(delivery: Delivery, reader: str, outcome: Outcome) -> Delivery:
    """The delivery whose entry tells of this stay too: `STREAM ENTRY-ID READER WHAT` behind the earlier ones."""
    what = fate_of(outcome).replace("_", " ")
    reason = "" if isinstance(outcome, Forward) else ": " + " ".join(outcome.reason.replace(";", ",").split())[:REASON]
    told = delivery.entry.trace.split("; ")
    said = [step for step in told if step and step != GAP]
    said.append(f"{delivery.stream} {delivery.entry_id} {reader} {what}{reason}")
    if GAP in told or len(said) > STEPS:
        said = [said[0], GAP, *said[1:][2 - STEPS :]]
    return replace(delivery, entry=replace(delivery.entry, trace="; ".join(said)))


def steps(trace: str) -> list[Step]:
    """What `traced` wrote; a step that cannot be read is left out."""
    found: list[Step] = []
    for said in trace.split("; "):
        stream, _, rest = said.partition(" ")
        entry_id, _, rest = rest.partition(" ")
        reader, _, what = rest.partition(" ")
        if what:
            found.append(Step(stream, added_at(entry_id), reader, what))
    return found


def admitted(group: Group, *, floor: int, last_version: int, size: int) -> Entry:
    """The first entry; `size` is the body's, in bytes."""
    return Entry(
        group=group.id,
        kind=group.kind,
        task=group.prompt.task,
        size=group.prompt.size,
        floor=floor,
        last_version=last_version,
        bytes=size,
    )


def forwarded(entry: Entry, group: Group, *, added: int) -> Entry:
    """The entry at the next stage; `added` is the size of the fields this stage wrote, in bytes."""
    rollouts = group.rollouts
    return replace(
        entry,
        alone=False,
        oldest_version=-1 if rollouts is None else rollouts.oldest_version,
        newest_version=-1 if rollouts is None else rollouts.newest_version,
        reward=group.reward,
        tokens=group.tokens,
        bytes=entry.bytes + added,
    )


def released(entry: Entry, *, failed: bool) -> Entry:
    """The entry at the same stage again."""
    return replace(entry, attempt=entry.attempt + failed)


def suspected(entry: Entry) -> Entry:
    """The entry at the same stage again, after a death of a process that held others too."""
    return replace(entry, alone=True)


def revived(entry: Entry, *, floor: int, last_version: int, size: int) -> Entry:
    """The entry in `prompts` of a group that was buried, as if it had just been admitted; its trace goes on."""
    return replace(recycled(entry, floor=floor, last_version=last_version, size=size), attempt=0)


def blamed(entry: Entry, alone: bool, max_attempts: int) -> Bury | Release:
    """What a reader's death means for a group it held: only a group that was alone in hand is to blame."""
    if alone and entry.attempt + 1 >= max_attempts:
        return Bury(reason=f"its reader died {entry.attempt + 1} times with only this group in hand")
    return Release(reason="its reader died", failed=alone)


def recycled(entry: Entry, *, floor: int, last_version: int, size: int) -> Entry:
    """The entry in `prompts` again, its rollouts forgotten; `size` is what is left of the body, in bytes."""
    return Entry(
        group=entry.group,
        kind=entry.kind,
        task=entry.task,
        size=entry.size,
        floor=floor,
        last_version=last_version,
        attempt=entry.attempt,
        bytes=size,
        trace=entry.trace,
    )
