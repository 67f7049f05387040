"""Which groups form the next batch: the oldest that are ready, if what stays behind stays inside the bound.

For: the choice, as a value with its reason. Not for: reading or training; micro-batches and ranks (`packing`,
`balance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.admission import first_at_risk
from broker.contract import OpenGroup
from broker.messages import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Train these now."""

    deliveries: tuple[Delivery, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to train yet."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing will ever come: the source is exhausted and no training group is open."""

    reason: str = "the source is exhausted and every group is closed"


def choose(
    ready: Sequence[Delivery],
    open_groups: Mapping[str, OpenGroup],
    *,
    version: int,
    groups: int,
    exhausted: bool,
    bounded: bool = True,
) -> Batch | Wait | Done:
    """The batch for the step from `version`, out of the scored groups at hand.

    `bounded` False (late = keep) skips the rank rule. A batch is short only when the source is exhausted and every open
    training group is in it.
    """
    training = {group: line for group, line in open_groups.items() if line.kind == "train"}
    oldest_first = sorted((one for one in ready if one.entry.group in training), key=lambda one: age(one, training))
    if exhausted and not training:
        return Done()
    if len(oldest_first) < groups and not (exhausted and len(oldest_first) == len(training)):
        return Wait(reason=f"{len(oldest_first)} of {groups} groups scored, {len(training)} open")
    batch = tuple(oldest_first[:groups])
    taken = {one.entry.group for one in batch}
    left = [line.last_version for group, line in training.items() if group not in taken]
    rank = first_at_risk(left, version, groups) if bounded else None
    if rank is not None:
        oldest = sorted(left)[rank]
        return Wait(
            reason=f"open group {rank} of {len(left)} (last version {oldest}) must come before version {version + 1}"
        )
    return Batch(deliveries=batch, reason=f"{len(batch)} oldest of {len(oldest_first)} scored, {len(training)} open")


def age(delivery: Delivery, training: Mapping[str, OpenGroup]) -> tuple[int, tuple[int, int]]:
    """Oldest first: by last version, then by arrival."""
    milliseconds, _, sequence = delivery.entry_id.partition("-")
    return training[delivery.entry.group].last_version, (int(milliseconds), int(sequence or 0))
