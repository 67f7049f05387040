"""What a group's next entry says, for each way a delivery can end.

For: the values of entries, shared by every broker, and what a death means for them. Not for: appending them (`transitions`, scripts).
`attempt` counts the whole way from admission to the end; `alone` lasts until the group gets past the stage it was in.
"""

from __future__ import annotations

from dataclasses import replace

from broker.messages import Entry, Group
from broker.outcomes import Bury, Release


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
