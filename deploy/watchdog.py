"""Whether a run still moves, and what holds it when it does not; pure.

For: telling a slow run from one that stands still. Not for: ending it (`local`) or judging why (`stuck`). Life is no
progress: a process that reports and reports and finishes nothing counts as standing still.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.snapshot import Snapshot
from deploy.stuck import findings, standing_still


@dataclass(frozen=True, slots=True)
class Watch:
    """When the run last moved, and how it looked then."""

    signature: tuple[object, ...] = ()
    since: float = 0.0

    def after(self, snapshot: Snapshot, now: float) -> Watch:
        """The watch after this look: anything new restarts the clock."""
        signature = signature_of(snapshot)
        return self if signature == self.signature else Watch(signature, now)

    def still_s(self, now: float) -> float:
        """Seconds without progress."""
        return now - self.since


def signature_of(snapshot: Snapshot) -> tuple[object, ...]:
    """What changes whenever the run moves."""
    progress = tuple(sorted((name, process.pid, process.progress) for name, process in snapshot.processes.items()))
    counts = tuple(sorted(snapshot.counts.items()))
    return (snapshot.stage, snapshot.detail, snapshot.version, counts, tuple(snapshot.backlog.items()), progress)


def who_holds(snapshot: Snapshot) -> str:
    """One sentence about a run that stands still: what `stuck` finds first, or where the groups lie and what their
    readers say.
    """
    holding = [finding for finding in findings(snapshot) if finding.holds]
    return (holding[0] if holding else standing_still(snapshot)).sentence
