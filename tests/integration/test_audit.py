"""The audit holds a sound run's books to be sound, and finds whatever is made wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.streams import PROMPTS
from deploy.audit import Check, audit, lineage
from deploy.inspection import Records
from deploy.run_check import saved_run
from deploy.server import reachable
from tests.command_line import tidemill
from tests.integration.test_launcher import Launched, made, until

__all__ = ["made"]


@pytest.fixture
def stopped(made: Callable[..., Path]) -> Path:
    """A run that was interrupted while its trainer was behind: groups are open in it."""
    folder = made("train.options={pace_s=0.5}", "run.steps=100000", "train.staleness=3")
    launched = Launched(folder)
    launched.reach(2)
    until(lambda: waiting(folder) > 16)  # more than the step that is published and the one that is made take along
    launched.interrupt()
    assert launched.end() == 130
    return folder


def waiting(folder: Path) -> int:
    """Scored groups that no step has taken."""
    with reachable(folder, saved_run(folder).broker) as url:
        server = Records(url, folder.name)
        return server.client.xlen(server.keys.stream("scored"))


def broken(folder: Path, damage: Callable[[Records], object] = lambda _: None) -> list[Check]:
    """The checks that fail after some damage."""
    with reachable(folder, saved_run(folder).broker) as url:
        server = Records(url, folder.name)
        damage(server)
        return [check for check in audit(server, folder / "store") if not check.holds]


def test_a_run_that_was_stopped_is_sound_and_any_damage_is_named(stopped: Path) -> None:
    assert broken(stopped) == []

    def lose_an_entry(server: Records) -> None:
        stream = next(
            name for name in ("scored", "rollouts", "prompts") if server.client.xlen(server.keys.stream(name))
        )
        found: Any = server.client.xrange(server.keys.stream(stream), count=1)
        server.client.xdel(server.keys.stream(stream), found[0][0])

    [lost] = broken(stopped, lose_an_entry)
    assert "open groups at" in str(lost) and lost.counted == lost.found + 1
    found = broken(stopped, lambda server: server.client.hincrby(server.keys.counts, "train.trained", 1))
    assert any("admitted" in str(check) for check in found)
    stray = broken(stopped, lambda server: server.client.xadd(server.keys.stream(PROMPTS), {"group": "stray"}))
    assert any("`prompts`" in str(check) and check.detail for check in stray)
    told = tidemill("audit", stopped.name, runs=stopped.parent)
    assert told.returncode == 70, told.stdout + told.stderr


def test_a_run_that_is_under_way_is_sound_at_every_moment(made: Callable[..., Path]) -> None:
    folder = made("run.steps=100000")
    launched = Launched(folder)
    launched.reach(3)
    with reachable(folder, saved_run(folder).broker) as url:
        server, versions = Records(url, folder.name), set[str]()
        while len(versions) < 10:
            checks = audit(server, folder / "store")
            assert checks and all(check.holds for check in checks), [str(check) for check in checks if not check.holds]
            versions.add(server.hash(server.keys.state)["version"])
    launched.interrupt()
    assert launched.end() == 130


def test_a_version_that_ledger_and_store_tell_differently_is_named_and_a_group_trained_twice() -> None:
    lines = [{"version": 1, "epoch": 1, "groups": ["a", "b"]}, {"version": 2, "epoch": 1, "groups": ["c"]}]
    stored = {(1, 1): ("a", "b"), (2, 1): ("c",)}
    assert all(check.holds for check in lineage(lines, stored))
    assert all(check.holds for check in lineage(lines[1:], stored)), "what was trimmed is not missed"
    differs, _ = lineage(lines, {**stored, (2, 1): ("d",)})
    assert differs.detail == "version 2"
    _, twice = lineage([*lines, {"version": 3, "epoch": 2, "groups": ["a"]}], stored)
    assert (twice.counted, twice.found, twice.detail) == (4, 3, "a")


def test_a_run_whose_books_are_wrong_does_not_end_well(stopped: Path) -> None:
    broken(stopped, lambda server: server.client.hincrby(server.keys.counts, "train.admitted", 1))
    launched = Launched(stopped)
    launched.reach(launched.snapshot()["version"] + 2)
    launched.interrupt()
    assert launched.end() != 0
    assert "the books are wrong: train groups admitted" in " ".join(launched.text().split())


def test_a_server_that_knows_less_than_the_store_is_not_judged(stopped: Path) -> None:
    with reachable(stopped, saved_run(stopped).broker) as url:
        server = Records(url, stopped.name)
        server.client.flushall()
        assert audit(server, stopped / "store") == []
