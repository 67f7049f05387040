"""What a broker promises the one process that writes the ledger.

For: a trainer's verbs, each fenced by its epoch. Not for: everybody else's (`contract`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.contract import Announcement, Books, LedgerLine, RunBroker, RunState
from broker.messages import Delivery


class TrainerBroker(RunBroker, Protocol):
    async def claim(self, epoch: int) -> RunState:
        """Fence every trainer below `epoch`. Raises Fenced if the run already knows this epoch or a higher one."""
        ...

    async def open_run(
        self, *, cap: int, groups: int, staleness: int, eval_cap: int, dead_limit: int = 0, announcement: Announcement
    ) -> RunState:
        """Open a new incarnation on this server (first start, or after a restart was looked into).

        With `dead_limit` buried groups nothing new is admitted; 0: however many there are.
        """
        ...

    async def restore(
        self,
        books: Books,
        ledger: Sequence[LedgerLine],
        live: Announcement,
        *,
        cap: int,
        groups: int,
        staleness: int,
        eval_cap: int,
        dead_limit: int = 0,
    ) -> RunState:
        """Rebuild the run from the store: these books, these lines; every open group becomes `missing`; new
        incarnation.
        """
        ...

    async def prepare(self, deliveries: Sequence[Delivery]) -> Books:
        """Check that our epoch is the newest and every delivery is live, and read the books for the manifest.

        Raises Fenced, or Broken naming the groups that are not open any more (the step is dropped).
        """
        ...

    async def commit(
        self,
        line: LedgerLine,
        announcement: Announcement,
        deliveries: Sequence[Delivery],
        *,
        evaluate: int = 0,
        hold_s: float = 0,
    ) -> None:
        """Append `line`, make the version live, settle and close its groups, all or nothing; a second call is a no-op.

        `evaluate` > 0 asks for an evaluation of the version on so many groups and holds it `hold_s`.
        Raises Fenced, or Broken when the ledger's head is not the parent or a group is not open.
        """
        ...

    async def announce(self, announcement: Announcement) -> None:
        """Announce the live version again under a new epoch (its tensors were lost and rebuilt)."""
        ...

    async def ledger(self, *, after: int = -1) -> list[LedgerLine]:
        """Lines with version > `after`, oldest first, as far back as the ledger was not trimmed."""
        ...

    async def open_entries(self, groups: Sequence[str]) -> list[Delivery]:
        """The live entries of these groups (roll-forward commits groups nobody has read), missing ones left out."""
        ...

    async def want_evaluation(self, version: int, groups: int, *, hold_s: float) -> None: ...

    async def forget_versions(
        self, keep: Sequence[int], *, now: float | None = None, dry_run: bool = False
    ) -> list[Announcement]:
        """Mark versions that are neither live, kept nor held as gone, and return them: their files may be deleted.
        With `dry_run` they are only returned.
        """
        ...

    async def trim_ledger(self, below: int) -> None:
        """Drop ledger lines of versions < `below` (the older kept checkpoint)."""
        ...

    async def finish(self, reason: str) -> None:
        """The run is over: readers leave when they see it."""
        ...
