"""The spare of a slot on real workers: it becomes the next controller, and nothing depends on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.records import records
from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted

HEAVY = "rollout.engine=tests.integration.heavy_engine:make"
"""It imports torch, so there is something to wait with."""


def said(host: Host, slot: str, event: str) -> list[dict[str, Any]]:
    """What the slot's supervisor logged under this name since it serves the run."""
    path = host.folder / "logs" / f"{slot}.worker.jsonl"
    return [told for told in records(path) if told.get("event") == event]


def ready_spare(host: Host, slot: str, count: int = 1) -> int:
    """The pid of the slot's `count`-th spare, once it is ready."""
    return until(lambda: (ready := said(host, slot, "spare ready")) and len(ready) >= count and ready[-1]["pid"], 40)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """A fleet of gpu0, which trains, and gpu1, which rolls out."""
    with ExitStack() as stack:

        def make(*overrides: str) -> Host:
            host = stack.enter_context(hosted(tmp_path, [*QUICK, *SLOWER, *overrides]))
            host.begin()
            host.start("gpu0", "train")
            host.start("gpu1", "rollout")
            host.reach("gpu0", state="serving", pool="train")
            host.reach("gpu1", state="serving", pool="rollout")
            return host

        yield make


def test_the_spare_becomes_the_next_controller_and_behaves_like_one_that_was_spawned(
    made: Callable[..., Host],
) -> None:
    host = made(HEAVY)
    spare = ready_spare(host, "gpu1")
    host.order("gpu0", "")
    host.reach("gpu0", state="vacant")
    host.order("gpu1", "train")
    assert host.reach("gpu1", state="serving", pool="train")["pid"] == spare
    before = host.version()
    host.order("gpu0", "rollout")
    until(lambda: host.version() > before + 1, 40)
    assert os.getpgid(spare) == spare
    open_files = Path(f"/proc/{spare}/fd")
    assert (open_files / "0").readlink() == Path(os.devnull)
    assert (open_files / "1").readlink() == host.folder / "logs" / "gpu1.err"
    begun = records(host.folder / "logs" / "gpu1.jsonl")
    assert [line["role"] for line in begun if line["event"] == "begun"] == ["rollout", "trainer"]
    second = ready_spare(host, "gpu1", 2)
    host.order("gpu1", "rollout")
    assert host.reach("gpu1", state="serving", pool="rollout")["pid"] == second
    assert not lives(spare)


@pytest.mark.nightly
def test_a_controller_that_dies_is_followed_by_the_spare(made: Callable[..., Host]) -> None:
    host = made(HEAVY)
    spare, first = ready_spare(host, "gpu1"), host.said("gpu1")["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: (now := host.said("gpu1"))["state"] == "serving" and now["pid"] == spare, 40)


def test_a_killed_spare_costs_nothing_but_time(made: Callable[..., Host]) -> None:
    host = made(HEAVY)
    spare = ready_spare(host, "gpu1")
    os.kill(spare, signal.SIGKILL)
    host.order("gpu0", "rollout")
    host.order("gpu1", "train")
    moved = host.reach("gpu1", state="serving", pool="train")["pid"]  # spawned, or the spare after the killed one
    assert moved != spare
    until(lambda: {line["pid"] for line in said(host, "gpu1", "spare ready")} - {spare, moved}, 40)


def test_a_spare_that_is_not_ready_is_done_without(made: Callable[..., Host]) -> None:
    host = made(HEAVY)
    spare = until(lambda: (started := said(host, "gpu1", "spare started")) and started[0]["pid"], 40)
    os.kill(spare, signal.SIGSTOP)
    host.order("gpu1", "train")
    assert host.reach("gpu1", state="serving", pool="train")["pid"] != spare
    assert not lives(spare)


def test_a_killed_worker_takes_its_spare_along(made: Callable[..., Host]) -> None:
    host = made(HEAVY)
    spare = ready_spare(host, "gpu1")
    host.workers["gpu1"].kill()
    host.workers["gpu1"].wait(10)
    until(lambda: not lives(spare), 10)


@pytest.mark.nightly
def test_a_worker_that_leaves_in_good_order_leaves_no_spare(made: Callable[..., Host]) -> None:
    host = made(HEAVY)
    spare = ready_spare(host, "gpu1")
    host.workers["gpu1"].terminate()
    assert host.workers["gpu1"].wait(30) == 0
    assert not lives(spare)


@pytest.mark.parametrize("overrides", [(HEAVY, "scheduler.spare=false"), ()])
def test_no_spare_is_kept_where_it_is_not_wanted_or_nothing_heavy_is_imported(
    made: Callable[..., Host], overrides: tuple[str, ...]
) -> None:
    host = made(*overrides)
    if overrides:
        until(lambda: host.said("gpu1")["for_s"] > 6, 20)
        assert said(host, "gpu1", "spare started") == []
    else:
        (ended,) = until(lambda: said(host, "gpu1", "spare ended"), 20)
        assert ended["decision"] == "Leave"
    worker = host.workers["gpu1"].pid
    controller = host.said("gpu1")["pid"]
    spawned = {int(pid) for file in Path(f"/proc/{worker}/task").glob("*/children") for pid in file.read_text().split()}
    assert controller in spawned
    assert not [pid for pid in spawned if "scheduler.spare" in Path(f"/proc/{pid}/cmdline").read_text()]
    host.order("gpu0", "rollout")
    host.order("gpu1", "train")
    host.reach("gpu1", state="serving", pool="train")
