"""The table of streams and the names of every key of a run.

For: names and who writes, who reads, what ends an entry. Not for: doing any of it.
One hash tag per run, so that every script touches one slot of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROMPTS: Final = "prompts"
ROLLOUTS: Final = "rollouts"
SCORED: Final = "scored"

WORK_STREAMS: Final = (PROMPTS, ROLLOUTS, SCORED)
"""Never trimmed: settling deletes, so length = undelivered + pending = backlog."""

NEXT: Final = {PROMPTS: ROLLOUTS, ROLLOUTS: SCORED}
"""Where a forwarded group goes."""

ROLE: Final = {PROMPTS: "rollout", ROLLOUTS: "reward", SCORED: "trainer"}
"""Who reads each work stream; also the name of its consumer group."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names of one run.

    >>> Keys("demo").open
    'tm:{demo}:open'
    """

    run: str

    @property
    def prefix(self) -> str:
        return f"tm:{{{self.run}}}:"

    def stream(self, name: str) -> str:
        return self.prefix + name

    def group(self, group: str) -> str:
        """Hash with the group's body."""
        return f"{self.prefix}group:{group}"

    @property
    def state(self) -> str:
        """Hash: incarnation, epoch, server, cursor, live version, tick, settings of admission."""
        return self.prefix + "run"

    @property
    def open(self) -> str:
        """Hash: group → `stream entry-id kind floor last-version`."""
        return self.prefix + "open"

    @property
    def counts(self) -> str:
        """Hash: `train.admitted`, `train.trained`, `train.retired.no_signal`, `eval.admitted`, …"""
        return self.prefix + "counts"

    @property
    def evaluations(self) -> str:
        """Hash: `12.wanted`, `12.admitted`, `12.n`, `12.reward`, …: one evaluation per version."""
        return self.prefix + "evaluations"

    @property
    def versions(self) -> str:
        """Hash: version → JSON announcement, while its files may be served."""
        return self.prefix + "versions"

    @property
    def holds(self) -> str:
        """Sorted set: `version holder` by expiry (server seconds)."""
        return self.prefix + "holds"
