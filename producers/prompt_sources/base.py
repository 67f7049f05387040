"""What a source of prompts promises: random access, so that a cursor and an id say everything.

For: the seam between the feeder and data. Not for: tokens (the feeder encodes), admission, or scoring.

A source is what its factory returns, called by name: `make(seed=…, **options)`, with the options of the run file. A
factory that has a parameter `held_out` is told how many held-out prompts the run will ask for, unless the run file says
otherwise. What can be checked is checked there, and raises Misconfigured: nothing has been started yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePrompt:
    text: str
    """What the model continues, chat template already applied where there is one."""
    answer: str = ""
    """The right answer, for rules that compare, and for the warm start."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Plain nested values the reward may want."""


class PromptSource(Protocol):
    name: str
    """Name in ids and metrics (`task`)."""
    size: int | None
    """Prompts in one pass; None when the source is endless (then the pass is always 0)."""

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        """The same (pass, index) gives the same prompt, in every process. A finite source shuffles each pass anew.

        Raises Poison for data that cannot be read any more, naming file, line and the mend.
        """
        ...

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        """Up to `size` prompts that `prompt` never returns. Raises Misconfigured when the source has none."""
        ...
