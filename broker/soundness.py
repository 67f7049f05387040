"""What must be true of a group beside its types: counts that fit one another, places that exist, ids that are names.

For: everything that comes in or goes out as bytes (`codec`). Not for: one field's form (`fields`, `tensors`), nor
whether a group is worth training. Whoever can write to the server can write anything; what gets past here may be wrong
to train on, but no role falls over it and nothing outside the run is named by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker.errors import Poison
from broker.messages import Rollouts

ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
LONGEST_ID: Final = 256
LARGEST_GROUP: Final = 65_536
"""Siblings, sampled actions each; more is a mistake, and would take memory before anybody noticed."""
LONGEST_ROLLOUT: Final = 2**24


def check_id(group: str) -> None:
    """Raises Poison unless it is names joined by `/`: ids stand in keys, in lists with spaces between, on terminals."""
    if len(group) > LONGEST_ID or ID.fullmatch(group) is None:
        raise Poison(
            f"group id {group[:80]!r} is not names joined by /; it is not worked on; use letters, digits, _, - and ., "
            f"none of them first a dot, at most {LONGEST_ID} in all"
        )


def check_prompt(size: int, temperature: float, max_actions: int) -> None:
    """Raises Poison for a group that nobody could sample."""
    if not 1 <= size <= LARGEST_GROUP:
        raise Poison(f"size is {size}; the group is buried; a group has 1 to {LARGEST_GROUP} siblings")
    if not 1 <= max_actions <= LONGEST_ROLLOUT:
        raise Poison(f"max_actions is {max_actions}; the group is buried; write 1 to {LONGEST_ROLLOUT}")
    if temperature < 0:
        raise Poison(f"temperature is {temperature}; the group is buried; write 0 (greedy) or more")


def check_rollouts(rollouts: Rollouts) -> None:
    """Raises Poison when siblings, offsets, spans and per-action tensors do not fit one another.

    Every group passes here twice a stage: rows are few, so plain numbers are several times faster than arrays.
    """
    offsets: list[int] = rollouts.offsets.tolist()
    check_counts(rollouts, offsets)
    lengths = [end - start for start, end in pairwise(offsets)]
    if offsets[0] != 0 or min(lengths, default=0) < 0:
        raise Poison(f"offsets are {offsets[:8]}…; the group is buried; they must begin at 0 and never fall")
    if rollouts.mask.max(initial=0) > 1:
        raise Poison("mask holds other numbers than 0 and 1; the group is buried; write 1 for an action of the policy")
    check_spans(rollouts.spans, lengths)


def check_counts(rollouts: Rollouts, offsets: Sequence[int]) -> None:
    siblings, actions = len(rollouts.texts), len(rollouts.actions)
    found = (
        len(offsets),
        offsets[-1] if offsets else -1,
        *map(len, (rollouts.logprobs, rollouts.mask, rollouts.finishes)),
    )
    needed = (siblings + 1, actions, actions, actions, siblings)
    if found != needed:
        names = ("offsets", "offsets[-1]", "logprobs", "mask", "finishes")
        name, has, needs = next(row for row in zip(names, found, needed, strict=True) if row[1] != row[2])
        what = f"{name} is {has} where {siblings} texts and {actions} actions need {needs}"
        raise Poison(f"{what}; the group is buried; the engine must describe every sampled action once")


def check_spans(spans: NDArray[np.int32], lengths: Sequence[int]) -> None:
    """(S, 4) rows of sibling, start, end, version over siblings of these lengths."""
    if spans.ndim != 2 or spans.shape[1] != 4 or not len(spans):
        raise Poison(f"spans have shape {spans.shape}; the group is buried; write one row of four numbers or more")
    siblings = len(lengths)
    for sibling, start, end, version in spans.tolist():
        if not (0 <= sibling < siblings and 0 <= start <= end <= lengths[sibling] and version >= 0):
            row = [sibling, start, end, version]
            raise Poison(f"span {row} names actions or a version that cannot be; the group is buried; mend the engine")


def check_scores(rewards: NDArray[np.float32], parts: Mapping[str, NDArray[Any]], size: int | None = None) -> None:
    """Raises Poison when they are not one number per sibling (`size`, where that is known)."""
    if size is not None and rewards.shape != (size,):
        raise Poison(f"rewards have shape {rewards.shape} for {size} siblings; the group is buried; write one for each")
    for name, values in parts.items():
        if values.shape != rewards.shape:
            found = f"reward part {name!r} has shape {values.shape}, the rewards have {rewards.shape}"
            raise Poison(f"{found}; the group is buried; a reward answers one number per sibling")
