"""Whether a run's books tell the truth: counters against the open set, the streams and the lineage of versions.

For: the end of every run, `tidemill audit`. Not for: mending; what does not hold is a fault of ours, with its evidence.

The counters alone balance by construction, so they are held against what lies there: every open group is counted and
has exactly its one entry, no entry lies about without a group, ledger and store tell the same of every version that
both remember, and no group trained twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.streams import WORK_STREAMS
from broker.weights import VersionStore, chain
from deploy.asking import asking
from deploy.inspection import NEWEST, Records, ledger_rows, open_rows
from deploy.snapshot import books_of

KINDS = ("train", "eval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Two numbers that must be the same."""

    what: str
    counted: int
    found: int
    detail: str = ""
    """Some of those that make the difference."""

    @property
    def holds(self) -> bool:
        return self.counted == self.found and not self.detail

    def __str__(self) -> str:
        some = f" ({self.detail})" if self.detail else ""
        return f"{self.what}: {self.counted} and {self.found}{some}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the server holds at one moment."""

    state: Mapping[str, str]
    counts: Mapping[str, int]
    open: Sequence[dict[str, Any]]
    """Rows of `inspect open`."""
    entries: Mapping[str, set[str]]
    """Stream → ids of its entries."""
    ledger: Sequence[dict[str, Any]]
    """Rows of `inspect ledger`."""


def audit(server: Records, store: Path) -> list[Check]:
    """All checks of a run, also of one that is under way; none when the server knows less than the store, which the
    next trainer mends. Raises Unavailable.
    """
    return list(checked(server, VersionStore(store)))


def checked(server: Records, store: VersionStore) -> Iterator[Check]:
    tick = max((one.books.tick for one in store.manifests()), default=0)
    found = held(server)
    if not found.state or int(found.state["tick"]) < tick:
        return
    yield from laws(found.counts, found.open)
    yield from entries(found)
    if found.state.get("version"):
        # Read after the server, so that the version it names is among them.
        stored = chain(store.manifests(), int(found.state["version"]), int(found.state["version_epoch"]))
        yield from lineage(found.ledger, {(one.version, one.epoch): one.groups for one in stored})


def held(server: Records) -> Held:
    """In one transaction: between two questions a living run goes on."""
    keys = server.keys
    with asking(server.url), server.client.pipeline(transaction=True) as asked:
        for key in (keys.state, keys.counts, keys.open):
            asked.hgetall(key)
        for stream in WORK_STREAMS:
            asked.xrange(keys.stream(stream))
        asked.xrevrange(keys.stream("ledger"), count=NEWEST)
        state, counts, open_lines, *streams, newest = asked.execute()
    return Held(
        state=state,
        counts={name: int(value) for name, value in counts.items()},
        open=open_rows(open_lines),
        entries={name: {entry for entry, _ in found} for name, found in zip(WORK_STREAMS, streams, strict=True)},
        ledger=ledger_rows(newest[::-1]),
    )


def laws(counts: Mapping[str, int], lines: Sequence[dict[str, Any]]) -> Iterator[Check]:
    kinds = Counter(str(line["kind"]) for line in lines)
    for kind in KINDS:
        books = books_of(counts, kind)
        rest = books["trained"] + books["retired"] + books["buried"] + counts.get(f"{kind}.open", 0)
        law = f"{kind} groups admitted, and trained + retired + buried + open"
        yield Check(what=law, counted=books["admitted"], found=rest)
        yield Check(
            what=f"{kind} groups counted as open, and open ones",
            counted=counts.get(f"{kind}.open", 0),
            found=kinds[kind],
        )


def entries(found: Held) -> Iterator[Check]:
    for stream, lying in found.entries.items():
        named = {str(line["entry"]) for line in found.open if line["stream"] == stream}
        odd = ", ".join(sorted(named ^ lying)[:3])
        what = f"open groups at `{stream}`, and entries there"
        yield Check(what=what, counted=len(named), found=len(lying), detail=odd)


def lineage(lines: Sequence[dict[str, Any]], stored: Mapping[tuple[int, int], Sequence[str]]) -> Iterator[Check]:
    """As far back as both go: old versions are pruned from the store and trimmed from the ledger."""
    told = {(line["version"], line["epoch"]): line["groups"] for line in lines}
    both = sorted(told.keys() & stored.keys())
    odd = ", ".join(
        f"version {version}" for version, epoch in both if list(stored[version, epoch]) != told[version, epoch]
    )
    yield Check(
        what="groups of remembered versions in the ledger, and in the store",
        counted=sum(len(told[one]) for one in both),
        found=sum(len(stored[one]) for one in both),
        detail=odd[:100],
    )
    trained = Counter(group for groups in {**stored, **told}.values() for group in groups)
    twice = ", ".join(group for group, times in trained.items() if times > 1)
    yield Check(
        what="groups that remembered versions trained, and different ones",
        counted=trained.total(),
        found=len(trained),
        detail=twice[:100],
    )
