"""What a handler may answer for a delivery; each is one transaction when settled.

For: values. Not for: doing them (the broker) or choosing one for an error (`handling.outcome_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from broker.fields import Fields
from broker.messages import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The group goes on to the next stream, with the part this stage added."""

    group: Group
    added: Fields | None = field(default=None, compare=False, repr=False)
    """That part as its fields: `handling.answer` checks it by encoding it, so that settling need not do it again.
    A handler leaves it out; what it puts here is not looked at.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """The group leaves the open set for a reason that is not an error (`no_signal`, `stale`, `evaluated`, …)."""

    reason: str
    tally: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers added to the run's evaluation record in the same script (evaluation groups only)."""
    group: Group | None = field(default=None, compare=False)
    """With the part this stage added, for the archive; none when it added nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """The group cannot be worked on: it goes to `dead` with the reason, and its body is kept."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The group is given back to its stage, to be tried again; `failed` says whether the try counts as an attempt."""

    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recycle:
    """The group goes back to `prompts` with a new floor: generated again, still open."""

    reason: str


Outcome = Forward | Retire | Bury | Release | Recycle

Verdict = Literal["done", "superseded", "not_owner"]
"""`superseded`: another delivery of this group was settled first, nothing changed.
`not_owner`: the entry is in another process's hands now (bury, release, recycle, renew), nothing changed."""


def fate_of(outcome: Outcome) -> str:
    """What it is called where groups are counted and in their traces."""
    if isinstance(outcome, Release):
        return "tried_again" if outcome.failed else "given_back"
    return {Forward: "forwarded", Retire: "retired", Bury: "buried", Recycle: "recycled"}[type(outcome)]
