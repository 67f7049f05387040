"""The surviving share: supposed at first, measured soon."""

from __future__ import annotations

import pytest

from scheduler.survival import Survival


def test_a_first_group_without_a_signal_does_not_make_survival_look_rare() -> None:
    survival = Survival()
    assert survival.share(0, 0) == 1.0
    assert 0.9 < survival.share(0, 1) < 1.0
    for retired in range(4, 400, 3):
        survival.share(retired // 3, retired)
    assert survival.share(133, 400) == pytest.approx(0.25, abs=0.02)


def test_looks_that_see_nothing_new_change_nothing() -> None:
    survival = Survival()
    before = survival.share(30, 10)
    assert [survival.share(30, 10) for _ in range(100)] == [before] * 100


def test_a_share_that_changes_is_followed_within_some_looks() -> None:
    survival, survived, retired = Survival(), 1000, 0
    assert survival.share(survived, retired) == 1.0
    for _ in range(60):
        survived, retired = survived + 5, retired + 15
        survival.share(survived, retired)
    assert survival.share(survived, retired) == pytest.approx(0.25, abs=0.05)
