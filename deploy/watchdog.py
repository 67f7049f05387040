"""Whether a run still moves, and what holds it when it does not; pure.

For: telling a slow run from one that stands still, and from one in which every group is buried. Not for: ending it
(`local`) or judging why (`stuck`). Life is no progress: a process that reports and reports and finishes nothing counts
as standing still; neither are burials.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.streams import SCORED
from deploy.snapshot import Snapshot
from deploy.stuck import findings, standing_still

HOPELESS = 16
"""So many groups buried in a row, and at least a batch of them, are enough: what buries them buries all."""


@dataclass(frozen=True, slots=True)
class Watch:
    """When the run last moved, and how it looked then."""

    signature: tuple[object, ...] = ()
    since: float = 0.0
    got_through: tuple[object, ...] = ()
    buried: int = 0
    """Training groups buried when one last got through, less those that were tried again since."""

    def after(self, snapshot: Snapshot, now: float) -> Watch:
        """The watch after this look: anything new restarts the clock, and what gets through the count of burials."""
        signature, got_through, buried = signature_of(snapshot), got_through_of(snapshot), buried_of(snapshot)
        return Watch(
            signature,
            self.since if signature == self.signature else now,
            got_through,
            min(self.buried, buried) if got_through == self.got_through else buried,
        )

    def still_s(self, now: float) -> float:
        """Seconds without progress."""
        return now - self.since

    def buried_in_a_row(self, snapshot: Snapshot) -> int:
        """Groups buried since one was scored, trained or retired; 0 while they may be chance."""
        number = buried_of(snapshot) - self.buried
        return number if number >= max(HOPELESS, snapshot.groups) else 0


def signature_of(snapshot: Snapshot) -> tuple[object, ...]:
    """What changes whenever the run moves."""
    progress = tuple(sorted((name, process.pid, process.progress) for name, process in snapshot.processes.items()))
    counts = tuple(sorted(snapshot.counts.items()))
    return (snapshot.stage, snapshot.detail, snapshot.version, counts, tuple(snapshot.backlog.items()), progress)


def got_through_of(snapshot: Snapshot) -> tuple[object, ...]:
    """What changes whenever a group is scored, trained or retired."""
    settled = tuple(
        sorted((name, n) for name, n in snapshot.counts.items() if ".trained" in name or ".retired" in name)
    )
    return (snapshot.version, settled, snapshot.backlog.get(SCORED, 0))


def buried_of(snapshot: Snapshot) -> int:
    """Training groups alone: a version that is gone buries all of its evaluation at once, and the run goes on."""
    return snapshot.books("train")["buried"]


def who_holds(snapshot: Snapshot) -> str:
    """One sentence about a run that stands still: what `stuck` finds first, or where the groups lie and what their
    readers say.
    """
    holding = [finding for finding in findings(snapshot) if finding.holds]
    return (holding[0] if holding else standing_still(snapshot)).sentence


def what_buries(snapshot: Snapshot, number: int) -> str:
    """The same about a run in which nothing but burials happens."""
    return f"{number} groups in a row were buried and none got through, the newest for: {snapshot.newest_dead}"
