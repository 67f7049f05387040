"""Reports of processes lie on the server, where anybody who may write there can put something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.redis_connection import text
from broker.reports import aged


def test_a_report_comes_with_its_age() -> None:
    assert aged({"rollout-0": '{"at": 5.5, "pid": 7}'}, now=7.0) == {"rollout-0": {"at": 5.5, "pid": 7, "age_s": 1.5}}


@pytest.mark.parametrize(
    "said", ["", "no json", "[]", "7", "null", "{}", '{"at": "now"}', '{"at": null}', "[" * 100_000]
)
def test_what_is_no_report_is_left_out_and_the_others_count(said: str) -> None:
    assert list(aged({"stranger": said, "rollout-0": '{"at": 1}'}, now=1.0)) == ["rollout-0"]


@given(st.binary())
def test_a_reply_that_is_no_text_is_read_all_the_same(said: bytes) -> None:
    assert isinstance(text(said), str)
    aged({"stranger": text(said)}, now=0.0)
