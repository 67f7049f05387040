"""A run whose processes are started elsewhere: by compose, by an operator on several hosts, by a cluster's own manager.

For: `tidemill run NAME --elsewhere`: the launch of `local` without processes of its own. It makes the model, names the
run in the fleet's record, watches, and closes the books. Not for: starting slots (`scheduler.slots`), feeder and
rewards (`join`), or a scheduler. When it is ended the run goes on, only unwatched; a run that stands still it reports
and does not end, for whoever has to come may be long in coming.
"""

from __future__ import annotations

import asyncio
import time

from broker.errors import Misconfigured
from broker.settings import URL_VARIABLE
from deploy.cores import Share, Usable
from deploy.local import INTERRUPTED, Ending, Launch
from deploy.snapshot import Snapshot
from deploy.watchdog import what_buries, who_holds

SETTLE_S = 20.0
"""Processes elsewhere may take so long to close what was open when the run ended."""


class Attendance(Launch):
    """One launch of one run folder that starts nobody."""

    told_of: float = 0.0
    """When the stand-still that was told began."""
    told_of_burials: bool = False

    @property
    def has_fleet(self) -> bool:
        return True

    def shares(self, usable: Usable) -> dict[str, Share]:
        """Nothing is started here. Raises Misconfigured for a server that only this process would reach."""
        if self.server.is_embedded:
            raise Misconfigured(
                f"the processes of {self.folder.name} are elsewhere and its server would be here alone; nothing was "
                f"started; name a server that all of them reach in {URL_VARIABLE}"
            )
        return {}

    def introduce(self, shares: dict[str, Share], cores: int) -> None:
        self.say(
            "slots, feeder, rewards and scheduler are started elsewhere; here the run is begun, watched and closed"
        )
        self.show_stage("starting")

    def stands_still(self, snapshot: Snapshot, seconds: float) -> None:
        """Said once for each time it stands."""
        since = time.monotonic() - seconds
        if since > self.told_of + 1:
            self.told_of = since
            self.say(f"no progress for {seconds:.0f} s: {who_holds(snapshot)}; still watching")

    def buries_all(self, snapshot: Snapshot, number: int) -> None:
        """Said once a launch: whoever mends it starts no launch for it."""
        if not self.told_of_burials:
            self.told_of_burials = True
            mend = "mend that, then `tidemill inspect dead replay --all`; still watching"
            self.say(f"{what_buries(snapshot, number)}; {mend}")

    async def audited(self, ending: Ending, url: str) -> Ending:
        """A run that has ended is held against its books once they have come to rest; one that goes on is not."""
        if ending.exit_code:
            return ending
        by = time.monotonic() + SETTLE_S
        held = await super().audited(ending, url)
        while held.exit_code and time.monotonic() < by and not self.interrupts:
            await asyncio.sleep(1.0)
            held = await super().audited(ending, url)
        return held

    def interrupt(self) -> None:
        self.interrupts += 1

    def interrupted(self) -> Ending:
        reason = f"no longer watched; the run goes on while its processes live; `tidemill resume {self.folder.name} "
        return Ending(exit_code=INTERRUPTED, reason=f"{reason}--elsewhere` watches it again")
