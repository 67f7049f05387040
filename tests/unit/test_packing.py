"""Micro-batches hold every rollout once, never exceed the token budget, padding included, and hold little padding."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from consumers.packing import PADDING, Shape, cut_to, micro_batches

SHAPES = st.lists(st.builds(Shape, st.integers(1, 200), st.integers(1, 200)), max_size=80)
BUDGETS = st.integers(1, 2000)


def padded_size(shapes: list[Shape], batch: list[int]) -> int:
    widest = max(shapes[index].context for index in batch) + max(shapes[index].continuation for index in batch)
    return len(batch) * widest


def padding(shapes: list[Shape], batch: list[int]) -> int:
    return padded_size(shapes, batch) - sum(sum(shapes[index]) for index in batch)


@given(SHAPES, BUDGETS)
def test_every_rollout_is_in_exactly_one_micro_batch(shapes: list[Shape], budget: int) -> None:
    assert sorted(itertools.chain(*micro_batches(shapes, budget))) == list(range(len(shapes)))


@given(SHAPES, BUDGETS)
def test_no_micro_batch_exceeds_the_budget_unless_it_is_one_long_rollout(shapes: list[Shape], budget: int) -> None:
    for batch in micro_batches(shapes, budget):
        assert padded_size(shapes, batch) <= budget or len(batch) == 1


@given(SHAPES, BUDGETS)
def test_micro_batches_are_filled_before_the_next_begins(shapes: list[Shape], budget: int) -> None:
    for one, following in itertools.pairwise(micro_batches(shapes, budget)):
        longer = [*one, following[0]]
        assert padded_size(shapes, longer) > budget or padding(shapes, longer) > PADDING


@given(SHAPES, BUDGETS)
def test_no_micro_batch_holds_more_padding_than_another_pass_would_cost(shapes: list[Shape], budget: int) -> None:
    assert all(padding(shapes, batch) <= PADDING for batch in micro_batches(shapes, budget))


def test_a_few_long_answers_do_not_pad_the_short_ones() -> None:
    shapes = [Shape(4, 8)] * 300 + [Shape(64, 8)] * 30
    assert [len(batch) for batch in micro_batches(shapes, 16384)] == [34, 296], "four short ones would be too many"


def test_three_rollouts_of_640_do_not_fit_two_micro_batches_of_1024_although_the_average_says_so() -> None:
    assert [len(batch) for batch in micro_batches([Shape(540, 100)] * 3, 1024)] == [1, 1, 1]


@given(SHAPES, BUDGETS, st.integers(0, 20))
def test_cutting_to_a_number_keeps_every_rollout_and_the_budget(shapes: list[Shape], budget: int, more: int) -> None:
    batches = micro_batches(shapes, budget)
    cut = cut_to(batches, len(batches) + more)
    assert len(cut) == len(batches) + more
    assert sorted(itertools.chain(*cut)) == list(range(len(shapes)))
    assert all(padded_size(shapes, batch) <= budget or len(batch) == 1 for batch in cut if batch)


def test_no_micro_batch_stays_empty_while_another_can_be_halved() -> None:
    assert sorted(map(len, cut_to([[0, 1, 2, 3, 4]], 4))) == [1, 1, 1, 2]
    assert sorted(map(len, cut_to([[0, 1]], 4))) == [0, 0, 1, 1]
