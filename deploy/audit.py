"""Whether a run's books tell the truth: counters against the open set, the streams and the lineage of versions.

For: the end of every run, `tidemill audit`. Not for: mending; what does not hold is a fault of ours, with its evidence.

The counters alone balance by construction, so they are held against what lies there: every open group is counted and
has exactly its one entry, no entry lies about without a group, ledger and store tell the same of every version that
both remember, and no group trained twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from broker.streams import WORK_STREAMS
from broker.weights import VersionStore, chain
from deploy.inspection import Records, ledger, open_groups
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


def audit(server: Records, store: Path, tries: int = 5) -> list[Check]:
    """All checks of a run; none when the server knows less than the store, which the next trainer mends.

    A run that is under way changes between two readings, so a difference is believed when it is seen `tries` times.
    """
    checks: list[Check] = []
    for _ in range(tries):
        checks = list(checked(server, store))
        if all(check.holds for check in checks):
            break
        time.sleep(0.1)
    return checks


def checked(server: Records, store: Path) -> Iterator[Check]:
    state = server.hash(server.keys.state)
    manifests = VersionStore(store).manifests()
    if not state or int(state["tick"]) < max((one.books.tick for one in manifests), default=0):
        return
    counts = {name: int(value) for name, value in server.hash(server.keys.counts).items()}
    lines = open_groups(server)
    yield from laws(counts, lines)
    yield from entries(server, lines)
    if state.get("version"):
        stored = chain(manifests, int(state["version"]), int(state["version_epoch"]))
        yield from lineage(ledger(server), {(one.version, one.epoch): one.groups for one in stored})


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


def entries(server: Records, lines: Sequence[dict[str, Any]]) -> Iterator[Check]:
    for stream in WORK_STREAMS:
        named = {str(line["entry"]) for line in lines if line["stream"] == stream}
        found = cast("list[tuple[str, Any]]", server.client.xrange(server.keys.stream(stream)))
        lying = {entry for entry, _ in found}
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
