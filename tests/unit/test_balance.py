"""Work is shared between ranks nearly evenly, completely and repeatably."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from consumers.balance import balanced

COSTS = st.lists(st.integers(0, 1000), max_size=60)


@given(COSTS, st.integers(1, 9))
def test_every_item_goes_to_exactly_one_share(costs: list[int], shares: int) -> None:
    found = balanced(costs, shares)
    assert len(found) == shares
    assert sorted(itertools.chain(*found)) == list(range(len(costs)))


@given(COSTS, st.integers(1, 9))
def test_shares_differ_by_at_most_the_largest_item(costs: list[int], shares: int) -> None:
    loads = [sum(costs[index] for index in share) for share in balanced(costs, shares)]
    assert max(loads) - min(loads) <= max(costs, default=0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(2, 3))
def test_small_cases_stay_within_a_third_of_the_best_partition(costs: list[int], shares: int) -> None:
    best = min(
        max(sum(cost for cost, where in zip(costs, places, strict=True) if where == share) for share in range(shares))
        for places in itertools.product(range(shares), repeat=len(costs))
    )
    found = max(sum(costs[index] for index in share) for share in balanced(costs, shares))
    assert found <= best * 4 / 3


def test_differencing_beats_handing_the_largest_to_the_lightest() -> None:
    costs = [8, 7, 6, 5, 4]  # greedy: 8+5+4 and 7+6
    loads = [sum(costs[index] for index in share) for share in balanced(costs, 2)]
    assert sorted(loads) == [14, 16]


@given(COSTS, st.integers(1, 9))
def test_the_same_costs_give_the_same_shares(costs: list[int], shares: int) -> None:
    assert balanced(costs, shares) == balanced(list(costs), shares)
