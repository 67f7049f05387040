"""A group's whole life as plain facts: prompt, answers, rewards, the way from stream to stream, and how it ended.

For: `tidemill show`, in words and as JSON. Not for: finding the group (`show`), or words (`life_in_words`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.archive import Closed
from broker.entries import Step, steps
from broker.messages import Entry, Group, added_at

Life = dict[str, Any]


def life_of_closed(closed: Closed) -> Life:
    """From its record in the archive."""
    last = Step(closed.stage, added_at(closed.entry_id), closed.by, str(closed))
    trained_from = None if closed.version is None else closed.version - 1
    oldest = None if closed.group.rollouts is None else closed.group.rollouts.oldest_version
    return {
        **life(closed.group, closed.entry, closed.advantages),
        "state": closed.fate,
        "reason": closed.reason,
        "version": closed.version,
        "staleness": None if trained_from is None or oldest is None else trained_from - oldest,
        "way": way([*steps(closed.entry.trace if closed.entry else ""), last], closed.at),
        "closed_at": closed.at,
        "by": closed.by,
    }


def life_of_buried(group: Group | None, entry: Entry, reason: str, stage: str, line: str) -> Life:
    """From `dead`, where it can still be tried again."""
    return {
        **life(group, entry),
        "state": "buried",
        "reason": reason,
        "stage": stage,
        "way": way(steps(entry.trace), added_at(line)),
        "closed_at": added_at(line),
        "dead_line": line,
    }


def life_of_open(
    group: Group | None, entry: Entry, stream: str, entry_id: str, hands: dict[str, Any], now: float
) -> Life:
    """As it stands now. `hands`: who holds the entry and for how long, or how many entries are read before it."""
    here = Step(stream, added_at(entry_id), str(hands.get("reader", "")), where(hands))
    return {
        **life(group, entry),
        "state": "open",
        "reason": "",
        "stream": stream,
        "entry": entry_id,
        **hands,
        "way": way([*steps(entry.trace), here], now),
    }


def where(hands: dict[str, Any]) -> str:
    if hands.get("reader"):
        return f"in hand, last sign of progress {hands['idle_s']:.1f} s ago"
    return f"waits to be read, {hands.get('before', 0)} before it"


def life(group: Group | None, entry: Entry | None, advantages: NDArray[np.float32] | None = None) -> Life:
    """What is the same wherever the group is."""
    facts: Life = {"group": group.id if group else entry.group if entry else ""}
    if entry is not None:
        names = ("kind", "task", "floor", "last_version", "attempt", "size")
        facts |= {name: getattr(entry, name) for name in names}
    if group is not None:
        prompt = group.prompt
        facts |= {"kind": group.kind, "task": prompt.task, "prompt": prompt.text, "answer": prompt.answer}
        facts |= {"temperature": prompt.temperature, "seed": prompt.seed, "reward": group.reward}
        facts["siblings"] = siblings(group, advantages)
    return facts


def siblings(group: Group, advantages: NDArray[np.float32] | None) -> list[dict[str, Any]]:
    """One map per sampled sibling: text, versions that sampled it, reward and its parts, advantage."""
    rollouts, scores = group.rollouts, group.scores
    if rollouts is None:
        return []
    found: list[dict[str, Any]] = []
    for index, (text, finish) in enumerate(zip(rollouts.texts, rollouts.finishes, strict=True)):
        part = rollouts.sibling(index)
        parts = {} if scores is None else {name: rounded(values[index]) for name, values in scores.parts.items()}
        found.append(
            {
                "text": text,
                "finish": finish,
                "actions": part.stop - part.start,
                "spans": [
                    {"start": start, "end": end, "version": version}
                    for sibling, start, end, version in rollouts.spans.tolist()
                    if sibling == index
                ],
                "logprob": rounded(rollouts.logprobs[part].sum()),
                "reward": None if scores is None else rounded(scores.rewards[index]),
                "parts": parts,
                "advantage": None if advantages is None else rounded(advantages[index]),
            }
        )
    return found


def rounded(value: np.floating[Any]) -> float:
    return round(float(value), 4)


def way(stays: Sequence[Step], end: float | None) -> list[dict[str, Any]]:
    """One map per stay in a stream; a stay ends when the next begins, the last at `end`."""
    ends = [*(stay.at for stay in stays[1:]), end]
    return [
        {
            "stream": stay.stream,
            "at": stay.at,
            "seconds": None if stay.at is None or until is None else round(until - stay.at, 3),
            "reader": stay.reader,
            "what": stay.what,
        }
        for stay, until in zip(stays, ends, strict=True)
    ]
