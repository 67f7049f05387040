"""Scored groups taken apart into what a learner trains on, and dealt out: to optimizer steps, ranks and forward passes.

For: values and plans, the same on every rank. Not for: tensors or collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.errors import Broken
from broker.messages import Actions, Group
from consumers.balance import balanced
from consumers.packing import Shape, cut_to, micro_batches


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sibling."""

    group: int
    """Its group's place in the batch."""
    context: Actions
    actions: Actions
    behaviour: NDArray[np.float32]
    mask: NDArray[np.uint8]
    advantage: float
    temperature: float

    @property
    def shape(self) -> Shape:
        return Shape(context=len(self.context), continuation=len(self.actions))


def rollouts_of(groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]]) -> list[Rollout]:
    """All siblings of all groups, in order. Raises Broken for a group without rollouts."""
    found: list[Rollout] = []
    for number, (group, credit) in enumerate(zip(groups, advantages, strict=True)):
        sampled = group.rollouts
        if sampled is None:
            raise Broken(
                f"group {group.id} reached the learner without rollouts; stopping; a rollout producer has a bug"
            )
        for sibling, advantage in enumerate(credit.tolist()):
            own = sampled.sibling(sibling)
            found.append(
                Rollout(
                    group=number,
                    context=group.prompt.actions,
                    actions=sampled.actions[own],
                    behaviour=sampled.logprobs[own],
                    mask=sampled.mask[own],
                    advantage=advantage,
                    temperature=group.prompt.temperature,
                )
            )
    return found


def by_group(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    groups: dict[int, list[Rollout]] = {}
    for one in rollouts:
        groups.setdefault(one.group, []).append(one)
    return list(groups.values())


def mini_batches(rollouts: Sequence[Rollout], number: int, seed: int) -> list[list[Rollout]]:
    """One part per optimizer step, siblings together, shuffled by the seed when there are several; no empty ones."""
    groups = by_group(rollouts)
    order = np.arange(len(groups)) if number == 1 else np.random.default_rng(seed).permutation(len(groups))
    parts = [[one for index in part for one in groups[index]] for part in np.array_split(order, number)]
    return [part for part in parts if part]


def passes(rollouts: Sequence[Rollout], *, ranks: int, budget: int, quadratic: float) -> list[list[list[Rollout]]]:
    """Per rank its forward passes: as many on every rank, since each pass is a collective; some may be empty.

    Groups go whole to a rank, so that siblings find their context there; costs a·L + b·L² are balanced (`balance`).
    """
    groups = by_group(rollouts)
    costs = [sum(cost(len(one.context) + len(one.actions), quadratic) for one in group) for group in groups]
    shares = [[one for index in share for one in groups[index]] for share in balanced(costs, ranks)]
    plans = [micro_batches([one.shape for one in share], budget) for share in shares]
    most = max(len(plan) for plan in plans)
    return [
        [[share[index] for index in part] for part in cut_to(plan, most)]
        for share, plan in zip(shares, plans, strict=True)
    ]


def cost(length: int, quadratic: float) -> float:
    """Of training on one sequence, in units of one action without attention."""
    return length + quadratic * length * length
