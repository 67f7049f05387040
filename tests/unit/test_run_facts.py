"""What the server knows of a run, as Prometheus is told it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.contract import Announcement, RunState
from broker.measures import EVERYWHERE, FATES, Measure
from broker.run_facts import facts_of
from broker.standing import Standing

LIVE = Announcement(version=7, epoch=1, path="versions/000007-e001", digest="d")


def told(what: Measure, standing: Standing) -> dict[tuple[str, ...], float]:
    return {tuple(labels.values()): value for measure, labels, value in facts_of(standing) if measure is what}


def engine(version: int = 7, synced_s: float = 1.0, **other: Any) -> dict[str, Any]:
    return {"role": "rollout", "version": version, "synced_s": synced_s, "age_s": 0.5, **other}


def everywhere(*engines: dict[str, Any], live: Announcement | None = LIVE) -> dict[tuple[str, ...], float]:
    beats = {f"rollout-{number}": beat for number, beat in enumerate(engines)}
    trainer = {"trainer": {"role": "trainer", "version": 8, "age_s": 0.1}}
    return told(EVERYWHERE, Standing(state=RunState(exists=True, live=live), beats={**beats, **trainer}))


def test_a_version_is_everywhere_when_the_last_engine_serves_it() -> None:
    assert everywhere(engine(), engine(synced_s=4.5), engine()) == {(): 4.5}
    assert everywhere(engine(), engine(version=6, synced_s=2.0)) == {}
    started = {name: fact for name, fact in engine().items() if name != "synced_s"}
    assert everywhere(engine(synced_s=4.5), started) == {(): 4.5} and everywhere(started) == {}


@pytest.mark.parametrize("gone", [{"age_s": 60.0}, {"left": True}])
def test_an_engine_that_is_silent_or_has_left_is_not_waited_for(gone: dict[str, Any]) -> None:
    assert everywhere(engine(), engine(version=6, **gone)) == {(): 1.0}


def test_nothing_is_everywhere_without_a_version_or_without_engines() -> None:
    assert everywhere() == {}
    assert everywhere(engine(version=-1), live=None) == {}


def test_books_begin_at_nought_so_that_the_first_of_each_is_seen() -> None:
    none = told(FATES, Standing())
    assert none[("train", "trained", "")] == none[("train", "buried", "")] == none[("eval", "buried", "")] == 0
    some = told(FATES, Standing(counts={"train.buried": 3, "train.retired.no_signal": 2, "train.open": 5}))
    assert (some[("train", "buried", "")], some[("train", "retired", "no_signal")]) == (3, 2)
    assert ("train", "open", "") not in some
