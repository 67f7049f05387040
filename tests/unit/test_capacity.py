"""What one server carries follows from what a group costs it: the smaller of what its core and its link allow."""

from __future__ import annotations

import pytest

from benchmarks.capacity import Cost, capacity, core_share
from benchmarks.message_sizes import SIBLINGS, parts_of, with_actions

GROUP = Cost(tokens=8192, server_us=500.0, in_bytes=100e3, out_bytes=200e3, body_bytes=100e3)


def test_a_slow_server_ends_at_its_core() -> None:
    found = capacity(GROUP, link_bytes_per_s=1.25e9)
    assert found.ends == "core"
    assert found.groups_per_s == 2000
    assert found.tokens_per_s == 2000 * 8192


def test_a_slow_link_ends_at_the_larger_of_what_comes_in_and_goes_out() -> None:
    found = capacity(GROUP, link_bytes_per_s=20e6)
    assert found.ends == "link"
    assert found.groups_per_s == 100
    assert capacity(GROUP._replace(in_bytes=400e3), 20e6).groups_per_s == 50


def test_gpus_are_counted_at_the_share_that_a_plan_uses() -> None:
    assert capacity(GROUP, 1.25e9).gpus(each=1000, share=0.5) == pytest.approx(8192)


def test_a_fleet_at_the_whole_of_what_the_core_carries_fills_it() -> None:
    assert core_share(GROUP, capacity(GROUP, 1.25e9).tokens_per_s) == pytest.approx(1)


@pytest.mark.parametrize("tokens", [1, 100, 1024, 16384])
def test_a_group_asked_for_by_its_bytes_is_the_one_of_so_many_tokens(tokens: int) -> None:
    asked = parts_of(with_actions(tokens).bytes)
    assert len(asked.rollouts.actions) == SIBLINGS * tokens
