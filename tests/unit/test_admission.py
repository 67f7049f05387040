"""The bound on staleness: never exceeded, never in the way of progress, whatever finishes when.

A simulated trainer takes any batch the rank rule allows, from groups that finish in any order and are filtered at will;
each is trained as late and from weights as old as the rules permit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.admission import cap, first_at_risk, overdue, step_keeps_bound


@dataclass(slots=True)
class Run:
    """Open groups by their last versions, oldest first; `ready` ones are scored."""

    groups: int
    staleness: int
    version: int = 0
    last: list[int] = field(default_factory=list[int])
    ready: list[bool] = field(default_factory=list[bool])
    worst: int = 0

    def admit(self) -> None:
        while len(self.last) < cap(self.groups, self.staleness):
            self.last.append(self.version + self.staleness)
            self.ready.append(False)

    def leave(self, ranks: set[int]) -> None:
        self.last = [last for rank, last in enumerate(self.last) if rank not in ranks]
        self.ready = [ready for rank, ready in enumerate(self.ready) if rank not in ranks]

    def may_train(self, ranks: set[int]) -> bool:
        remaining = [last for rank, last in enumerate(self.last) if rank not in ranks]
        return step_keeps_bound(remaining, self.version, self.groups)

    def train(self, ranks: set[int]) -> None:
        floors = [self.last[rank] - self.staleness for rank in ranks]
        self.worst = max(self.worst, *(self.version - floor for floor in floors))
        self.leave(ranks)
        self.version += 1

    def rule_holds(self) -> bool:
        return all(last >= self.version + rank // self.groups for rank, last in enumerate(self.last))


def play(run: Run, draw: random.Random, *, filtered: float, acts: int) -> None:
    """So many acts; fails when the rule breaks or everything is scored and still no batch is allowed."""
    for _ in range(acts):
        run.admit()
        assert run.rule_holds()
        assert overdue(run.last, run.version, run.groups) == 0
        waiting = [rank for rank, ready in enumerate(run.ready) if not ready]
        scored = [rank for rank, ready in enumerate(run.ready) if ready]
        if len(scored) >= run.groups:
            drawn = set(draw.sample(scored, run.groups))
            batch = drawn if waiting or run.may_train(drawn) else set(range(run.groups))
            if run.may_train(batch):
                run.train(batch)
                continue
            assert waiting, f"wedged at version {run.version}: {run.last}"
        finished = draw.choice(waiting)
        if draw.random() < filtered:
            run.leave({finished})
        else:
            run.ready[finished] = True


BOUNDS = [(staleness, groups) for staleness in (0, 1, 2, 4) for groups in (1, 2, 3, 4)]


@pytest.mark.parametrize(("staleness", "groups"), BOUNDS)
@given(seed=st.integers(0, 2**32 - 1), filtered=st.sampled_from([0.0, 0.3, 0.9]))
def test_staleness_never_exceeds_the_bound_and_training_always_goes_on(
    staleness: int, groups: int, seed: int, filtered: float
) -> None:
    run = Run(groups, staleness)
    play(run, random.Random(seed), filtered=filtered, acts=200)
    assert run.worst <= staleness
    assert run.version >= (3 if filtered < 0.5 else 0)


@pytest.mark.parametrize(("staleness", "groups"), BOUNDS)
def test_the_oldest_batch_is_always_legal_once_everything_is_scored(staleness: int, groups: int) -> None:
    run = Run(groups, staleness)
    for _ in range(20):
        run.admit()
        assert run.may_train(set(range(groups)))
        run.train(set(range(groups)))
    assert (run.version, run.worst) == (20, staleness)


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_without_staleness_each_batch_is_generated_by_the_version_it_trains(groups: int) -> None:
    run = Run(groups, 0)
    play(run, random.Random(groups), filtered=0.2, acts=300)
    assert run.worst == 0
    assert run.version > 10


def test_the_rule_forbids_overtaking_a_straggler_for_ever() -> None:
    straggler, cap_of_one = 1, 1
    assert step_keeps_bound([straggler], 0, cap_of_one), "it may still be trained at version 1"
    assert not step_keeps_bound([straggler], 1, cap_of_one), "a step to 2 would leave it too old"
    assert first_at_risk([5, straggler, 5], 1, 1) == 0


def test_the_rule_counts_who_can_be_trained_before_whom() -> None:
    assert step_keeps_bound([1, 1, 2, 2], 0, 2)
    assert not step_keeps_bound([1, 1, 1, 2], 0, 2), "the third of them cannot be in the next batch of two"
    assert first_at_risk([1, 1, 1, 2], 0, 2) == 2
    assert first_at_risk([], 7, 2) is None


def test_a_resume_with_a_smaller_bound_finds_what_is_overdue() -> None:
    assert overdue([3, 3, 3, 3], 3, 2) == 2, "the second pair would wait until version 4"
    assert overdue([3, 3, 4, 4], 3, 2) == 0
    assert overdue([2, 9, 9], 3, 1) == 1
    assert overdue([], 3, 1) == 0


@pytest.mark.parametrize(("groups", "staleness", "most"), [(64, 1, 128), (1, 0, 1), (3, 4, 15)])
def test_the_cap_is_a_batch_per_version_of_the_bound_and_one_more(groups: int, staleness: int, most: int) -> None:
    assert cap(groups, staleness) == most
