"""A closed group in one row of a list.

For: `archive_index` and whoever shows its pages. Not for: the whole record (`archive.Closed`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from broker.archive import Fate
from broker.fields import unpack
from broker.messages import Kind

SAID: Final = 4000
"""Characters of a group that `text` is looked for in: a third of them for the prompt's end, the rest for the answers in
equal parts.
"""
SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A closed group in one row of a list."""

    id: str
    kind: Kind
    task: str
    fate: Fate
    reason: str
    trained: int | None
    """Version it was trained into."""
    oldest: int | None
    newest: int | None
    """Versions that sampled it; None when nothing was sampled."""
    reward: float | None
    """Mean over siblings; None when it was not scored."""
    length: float
    """Sampled actions per sibling, mean."""
    siblings: int
    attempt: int
    at: float
    """When it was closed, seconds since 1970."""
    prompt: str
    """Its last 200 characters."""
    answer: str
    """The first 200 characters of the first sibling."""


NAMES: Final = tuple(field.name for field in fields(Summary))
COLUMNS: Final = ", ".join(NAMES)
values_of: Final = attrgetter(*NAMES)
"""A summary's values in the order of the columns; `astuple` would copy each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the groups that were found."""

    total: int
    """How many there are on all pages."""
    rows: tuple[Summary, ...]


def summarised(record: dict[str, Any]) -> tuple[Summary, str]:
    """The row of a record, and what `text` is looked for in."""
    body: dict[bytes, bytes] = unpack(record["group"])
    size = int(body[b"size"])
    answers = [text(body.get(b"r%d.text" % index)) for index in range(size)]
    prompt, sampled = text(body[b"prompt"]), record["sampled"] or (None, None)
    found = Summary(
        **{name: record[name] for name in ("id", "kind", "fate", "reason", "reward", "length", "at")},
        task=text(body.get(b"task")),
        trained=record["version"],
        oldest=sampled[0],
        newest=sampled[1],
        siblings=size,
        attempt=int(record["entry"].get("attempt", b"0")),
        prompt=prompt[-SHOWN:],
        answer=answers[0][:SHOWN] if answers else "",
    )
    share = 2 * SAID // 3 // max(1, size)
    return found, "\n".join([prompt[-SAID // 3 :], *(answer[:share] for answer in answers)])


def text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
