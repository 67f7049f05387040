"""Arithmetic of open groups and staleness.

For: how many groups may be open, and whether a step keeps every open group inside the bound. Not for: doing either.

Symbols: B groups per version · η bound on staleness, in versions · t live version · floor version live at admission ·
last version = floor + η. Staleness = version the gradient applies to − oldest version that touched the group.

Proof of the bound. Let d_i be the last version of the i-th oldest open group (from 0). Always d_i ≥ t + ⌊i/B⌋:
a new group has d = t + η and rank < K = (η+1)·B, so ⌊rank/B⌋ ≤ η; a group that leaves lowers ranks; a step from t to
t+1 is taken only if it leaves d_i ≥ t+1+⌊i/B⌋ (`step_keeps_bound`). A group in the batch has d ≥ t, its weights were
≥ floor = d − η, hence staleness ≤ t − floor ≤ η. Liveness: the B oldest groups are always a legal batch, since what
they leave behind had ranks ≥ B and so d ≥ t+1 before; hence η = 0 progresses.
"""

from __future__ import annotations

from collections.abc import Sequence


def cap(groups: int, staleness: int) -> int:
    """K, the most training groups that may be open: (η+1)·B."""
    return (staleness + 1) * groups


def step_keeps_bound(remaining_last_versions: Sequence[int], version: int, groups: int) -> bool:
    """Whether a step from `version` may leave exactly these open groups behind (their last versions, any order)."""
    return first_at_risk(remaining_last_versions, version, groups) is None


def first_at_risk(remaining_last_versions: Sequence[int], version: int, groups: int) -> int | None:
    """Rank of the first group the step would endanger, or None when the step is legal."""
    for rank, last in enumerate(sorted(remaining_last_versions)):
        if last < version + 1 + rank // groups:
            return rank
    return None


def overdue(last_versions: Sequence[int], version: int, groups: int) -> int:
    """How many open groups break the rank rule already (a resume with another η or B): these are recycled once."""
    return sum(last < version + rank // groups for rank, last in enumerate(sorted(last_versions)))
