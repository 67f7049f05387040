"""What a broker promises a person: what became of buried groups is theirs to say.

For: `tidemill inspect dead`. Not for: roles (`contract`, `trainer_contract`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from broker.contract import RunBroker
from broker.messages import Entry

DeadVerdict = Literal["done", "gone", "open", "full", "measured", "finished", "forgotten"]
"""`gone`: there is no such line, or no body. `open`: the group is open (again). `full`: no place below the cap.
`measured`: an evaluation group, whose version has been measured without it. `finished`: nobody works any more.
`forgotten`: the server lost data since; the group may have been revived, and trained, meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """One line of `dead`."""

    id: str
    entry: Entry
    reason: str
    stage: str
    """The stream it was taken from."""


class OperatorBroker(RunBroker, Protocol):
    async def dead(self) -> list[DeadGroup]:
        """All buried groups, oldest first."""
        ...

    async def revive(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        """Each goes to `prompts` again, if there is a place below the cap: as it was admitted, with a new floor and no
        failed attempts. It counts as open and no longer as buried.
        """
        ...

    async def drop(self, lines: Sequence[DeadGroup]) -> list[DeadVerdict]:
        """Lines and bodies are deleted. The groups count as retired, `dropped`, and no longer as buried."""
        ...
