"""What becomes of a group that comes too late, and how stale the ones are that train.

For: the judgement at consumption, pure. Not for: the admission that keeps it from being needed (`broker.admission`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from broker.messages import Entry
from broker.outcomes import Recycle, Retire

Late = Literal["wait", "recycle", "retire", "keep"]


def staleness_of(entry: Entry, version: int) -> int:
    """Versions between the oldest weights that touched the group and the ones the gradient applies to."""
    return version - entry.oldest_version


def judge(entry: Entry, version: int, last_version: int, staleness: int, late: Late) -> Recycle | Retire | None:
    """None: train it. With `wait` nothing is ever late, except after a resume with another bound: recycled once."""
    too_old = version > last_version or staleness_of(entry, version) > staleness
    from_the_future = entry.newest_version > version
    if from_the_future:
        return Recycle(
            reason=f"sampled by version {entry.newest_version}, which this lineage (version {version}) does not have"
        )
    if not too_old or late == "keep":
        return None
    reason = f"staleness {staleness_of(entry, version)} at version {version}, bound {staleness}"
    return Retire(reason="stale") if late == "retire" else Recycle(reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    mean: float
    largest: int
    counts: Mapping[str, int]
    """Groups by staleness, as text, so that it can be a JSON key."""


def spread(oldest: Sequence[int], version: int) -> Spread:
    """Staleness over a batch trained from `version`; `oldest`: of each group, the oldest version that sampled it."""
    values = [version - one for one in oldest]
    counts = {str(value): values.count(value) for value in sorted(set(values))}
    return Spread(mean=sum(values) / len(values), largest=max(values), counts=counts)
