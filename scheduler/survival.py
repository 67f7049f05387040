"""p, the share of scored groups that are trained; the others had no signal.

For: the demand on the pools before the filter, which is 1/p of what is trained. Not for: deciding which groups have a
signal (`consumers.algorithms`).
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.9
"""What was seen counts so much at each later look that sees some."""
SUPPOSED = 16.0
"""Groups supposed to have survived before any was seen: a first one that was dropped says little."""
LEAST = 0.01


@dataclass(slots=True)
class Survival:
    """Over about the last ten looks at which groups were scored."""

    survived: int = 0
    scored: int = 0
    kept: float = SUPPOSED
    seen: float = SUPPOSED

    def share(self, survived: int, retired: int) -> float:
        """p now. Groups since the run began: that passed the filter, and that were retired by it."""
        scored = survived + retired
        if scored > self.scored:
            self.kept = self.kept * MEMORY + survived - self.survived
            self.seen = self.seen * MEMORY + scored - self.scored
            self.survived, self.scored = survived, scored
        return min(1.0, max(LEAST, self.kept / self.seen))
