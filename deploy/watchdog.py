"""Whether a run still moves, and who holds it when it does not; pure.

For: telling a slow run from one that stands still, and naming the role, the group and the reason. Not for: ending it
(`local`). Life is no progress: a process that reports and reports and finishes nothing counts as standing still.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from broker.streams import PROMPTS, ROLLOUTS, SCORED
from deploy.snapshot import Process, Snapshot

SILENT_S = 10.0
"""A process that has not reported for so long is frozen or gone; it reports every second."""
READERS = {PROMPTS: ("rollout",), ROLLOUTS: ("reward", "judge"), SCORED: ("trainer",)}
"""Work stream → roles of those that take from it."""


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
    """One sentence: the process that is silent, else the stream where the groups lie and what its readers say."""
    silent = [(name, process) for name, process in snapshot.processes.items() if process.age_s > SILENT_S]
    if silent:
        name, process = max(silent, key=lambda one: one[1].age_s)
        words = f"has not reported for {process.age_s:.0f} s, last {process.stage!r}: it is frozen or dead"
        return f"{name} (pid {process.pid}) {words}"
    lying = Counter(stream for stream in snapshot.open_groups.values() if stream)
    if not lying:
        return f"no group is open; {said_by(snapshot, 'feeder')}"
    stream, number = lying.most_common(1)[0]
    oldest = next(group for group, its_stream in snapshot.open_groups.items() if its_stream == stream)
    where = f"{number} of {sum(lying.values())} open groups lie in `{stream}` (oldest {oldest})"
    return f"{where}; {said_by(snapshot, *READERS[stream])}"


def said_by(snapshot: Snapshot, *roles: str) -> str:
    """What the processes of these roles say they do."""
    processes = {name: process for name, process in snapshot.processes.items() if process.role in roles}
    return "; ".join(map(said, processes, processes.values())) or f"no {' and no '.join(roles)} has ever reported"


def said(name: str, process: Process) -> str:
    return f"{name} (pid {process.pid}) says {process.stage!r}"
