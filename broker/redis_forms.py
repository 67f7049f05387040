"""How values look to the scripts and how their replies look to us.

For: arguments of a verb, values of a reply. Not for: sending anything (`redis_connection`), or the bytes of a group
(`codec`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from broker import codec, entries
from broker.contract import Announcement, Books, Evaluation, OpenGroup, RunState
from broker.errors import Poison
from broker.messages import Delivery, Entry, Group, Kind
from broker.outcomes import Bury, Forward, Outcome, Recycle, Retire
from broker.redis_connection import Arg, text
from broker.streams import NEXT

SCRIPT_SETS = (b"floor", b"last_version")
"""Entry fields the scripts write, because only they know the live version."""


def packed_group(group: Group) -> list[Arg]:
    """id, entry values, entry …, body values, body … as the scripts read them."""
    entry = Entry(
        group=group.id, kind=group.kind, task=group.prompt.task, size=group.prompt.size, floor=0, last_version=0
    )
    body = codec.encode_prompt(group)
    fields = entry_args(replace(entry, bytes=codec.size_of(body)))
    return [group.id, len(fields), *fields, 2 * len(body), *flat(body.items())]


def entry_args(entry: Entry) -> list[Arg]:
    return flat((name, value) for name, value in codec.encode_entry(entry).items() if name not in SCRIPT_SETS)


def flat(pairs: Iterable[tuple[bytes, bytes]]) -> list[Arg]:
    return [part for pair in pairs for part in pair]


def settlement_call(reader: str, delivery: Delivery, outcome: Outcome) -> tuple[str, list[Arg]]:
    """Which script settles this outcome, and its arguments."""
    stream, entry = delivery.stream, entries.traced(delivery, reader, outcome).entry
    head: list[Arg] = [entry.group, stream, delivery.entry_id]
    if isinstance(outcome, Forward):
        part = outcome.added or codec.encode_added(stream, outcome.group)
        fields = entry_args(entries.forwarded(entry, outcome.group, added=codec.size_of(part)))
        name = "forward_into_rollouts" if NEXT[stream] == "rollouts" else "forward"
        return name, [*head, NEXT[stream], len(fields), *fields, 2 * len(part), *flat(part.items())]
    if isinstance(outcome, Retire):
        tally = [part for name, number in outcome.tally.items() for part in (name, number)]
        return "retire", [*head, outcome.reason, "", *tally]
    if isinstance(outcome, Bury):
        fields = entry_args(entry)
        return "bury", [*head, reader, outcome.reason, "", len(fields), *fields]
    if isinstance(outcome, Recycle):
        fields = entry_args(entries.recycled(entry, floor=0, last_version=0, size=0))
        return "release", [*head, reader, "recycle", "", len(fields), *fields]
    fields = entry_args(entries.released(entry, failed=outcome.failed))
    return "release", [*head, reader, "stage", "", len(fields), *fields]


def run_state(raw: Mapping[str, str], server: str) -> RunState:
    exists = "incarnation" in raw
    return RunState(
        exists=exists,
        incarnation=int(raw.get("incarnation", 0)),
        epoch=int(raw.get("epoch", 0)),
        tick=int(raw.get("tick", 0)),
        same_server=raw.get("server") == server,
        live=announcement_of(raw["announcement"]) if exists else None,
        cap=int(raw.get("cap", 0)),
        eval_cap=int(raw.get("eval_cap", 0)),
        finished=raw.get("finished", ""),
        groups=int(raw.get("groups", 0)),
        staleness=int(raw.get("staleness", 0)),
        dead_limit=int(raw.get("dead_limit", 0)),
    )


def why_closed(state: RunState) -> str:
    if not state.exists:
        return "no trainer has opened it yet"
    return "the server was restarted and no trainer has compared its ledger with the store yet"


def books_of(reply: Sequence[Any]) -> Books:
    _, tick, cursor, cursor_value, exhausted, lines, counts = reply
    return Books(
        tick=int(tick or 0),
        cursor=int(cursor or 0),
        cursor_value=text(cursor_value),
        exhausted=text(exhausted) == "1",
        open={text(lines[i]): open_group(text(lines[i + 1])) for i in range(0, len(lines), 2)},
        counts={text(counts[i]): int(counts[i + 1]) for i in range(0, len(counts), 2)},
    )


def open_group(line: str) -> OpenGroup:
    stream, entry_id, kind, floor, last = line.split(" ")
    gone = stream == "-"
    return OpenGroup(
        stream="" if gone else stream,
        entry_id="" if gone else entry_id,
        kind=cast("Kind", kind),
        floor=int(floor),
        last_version=int(last),
    )


def announcement_of(raw: Any) -> Announcement:
    return Announcement(**json.loads(text(raw)))


def announcement_text(announcement: Announcement) -> str:
    return json.dumps(asdict(announcement))


def evaluations_of(raw: Mapping[str, str]) -> list[Evaluation]:
    tallies: dict[int, dict[str, float]] = {}
    for name, value in raw.items():
        version, what = name.split(".", 1)
        tallies.setdefault(int(version), {})[what] = float(value)
    return [
        Evaluation(
            version=version, wanted=int(tally.pop("wanted", 0)), admitted=int(tally.pop("admitted", 0)), tally=tally
        )
        for version, tally in sorted(tallies.items())
    ]


def deliveries_of(stream: str, reply: Any) -> tuple[list[Delivery], list[tuple[str, Poison]]]:
    """Entries of a read, and ids of those that cannot be read with the reason; one that was settled meanwhile comes
    without fields and is left out.
    """
    found: list[Delivery] = []
    unreadable: list[tuple[str, Poison]] = []
    for entry_id, fields in (one for _, read in reply or [] for one in read):
        try:
            if fields:
                entry = codec.decode_entry(fields)
                found.append(Delivery(stream=stream, entry_id=text(entry_id), entry=entry))
        except Poison as reason:
            unreadable.append((text(entry_id), reason))
    return found, unreadable
