"""Mixtures hold their shares at every cursor, and exact passes give every prompt as often as asked."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import Misconfigured
from producers.mixture import Place, Schedule, turns, whole_weights

WEIGHTS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
SIZES = st.lists(st.none() | st.integers(1, 12), min_size=1, max_size=4).filter(any)


@given(WEIGHTS)
@settings(deadline=None)
def test_at_every_cursor_each_source_has_had_its_share_within_the_best_possible_bound(weights: list[int]) -> None:
    schedule = Schedule(weights, [None] * len(weights))
    bound = 1 - Fraction(1, max(2, 2 * len(weights) - 2))
    had = [0] * len(weights)
    for cursor in range(2 * sum(weights)):
        had[schedule.at(cursor).source] += 1
        for weight, count in zip(weights, had, strict=True):
            assert abs(Fraction((cursor + 1) * weight, sum(weights)) - count) <= (bound if len(weights) > 1 else 0)
    assert had == [2 * weight for weight in weights]


@given(WEIGHTS, st.integers(0, 10**9))
@settings(deadline=None)
def test_a_far_cursor_is_answered_as_if_all_before_it_had_been_drawn(weights: list[int], far: int) -> None:
    whole = whole_weights(weights)
    schedule, period = Schedule(weights, [None] * len(weights)), sum(whole)
    place, rounds = schedule.at(far), far // period
    assert turns(whole)[far % period] == place.source
    assert place.index == schedule.given(far)[place.source]
    assert sum(schedule.given(far)) == far
    assert schedule.given(rounds * period) == [rounds * weight for weight in whole]


@given(SIZES, st.integers(1, 3), st.data())
@settings(deadline=None)
def test_every_prompt_of_a_finite_source_comes_once_in_every_pass(
    sizes: list[int | None], passes: int, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(sizes), max_size=len(sizes)))
    schedule = Schedule(weights, sizes, passes)
    assert schedule.total is not None
    drawn = Counter(schedule.at(cursor) for cursor in range(schedule.total))
    assert set(drawn.values()) == {1}
    for source, size in enumerate(sizes):
        if size is not None:
            wanted = {Place(source, turn, index) for turn in range(passes) for index in range(size)}
            assert wanted == {place for place in drawn if place.source == source}
    assert schedule.given(schedule.total) == [
        sum(place.source == source for place in drawn) for source in range(len(sizes))
    ]


def test_when_a_source_has_had_its_passes_the_others_share_its_turns() -> None:
    schedule = Schedule([2, 1, 1], [4, 100, 100], passes=1)
    assert schedule.given(8) == [4, 2, 2]
    assert schedule.given(108) == [4, 52, 52]
    assert schedule.total == 204


def test_without_passes_a_finite_source_is_read_again_for_ever() -> None:
    schedule = Schedule([1], [3])
    assert schedule.total is None
    assert [schedule.at(cursor).pass_number for cursor in (0, 2, 3, 3_000_000)] == [0, 0, 1, 1_000_000]


def test_nothing_is_behind_the_last_prompt() -> None:
    with pytest.raises(IndexError, match="cursor 6 is behind the last of 6"):
        Schedule([1], [3], passes=2).at(6)


def test_decimal_weights_are_held_exactly() -> None:
    assert whole_weights([0.7, 0.2, 0.1]) == [7, 2, 1]
    assert whole_weights([1.5, 3]) == [1, 2]


@pytest.mark.parametrize("weights", [[1, 0], [1, -2], [float("nan")], [float("inf"), 1], []])
def test_a_weight_that_is_no_share_is_refused(weights: list[float]) -> None:
    with pytest.raises(Misconfigured, match="must be above 0"):
        whole_weights(weights)


def test_weights_that_would_have_to_be_rounded_are_refused_with_the_numbers() -> None:
    with pytest.raises(Misconfigured, match=r"repeat only after 1000001 prompts \(at most 100000\)"):
        whole_weights([0.000001, 1])


def test_passes_over_endless_sources_alone_are_refused() -> None:
    with pytest.raises(Misconfigured, match="every source is endless"):
        Schedule([1, 1], [None, None], passes=2)
