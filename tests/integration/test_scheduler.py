"""The scheduler on real slots: it moves them by what waits, alone or watched, and nothing is lost when it dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted

BRISK = ["scheduler.every_s=0.5", "scheduler.dwell_s=2", "scheduler.drain_s=5", "scheduler.switching=0.5"]


def scheduler(host: Host, *options: str) -> subprocess.Popen[bytes]:
    """A scheduler as an operator starts it."""
    with (host.folder.parent / "scheduler.said").open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "scheduler", *options], env=host.environment, stdout=said, stderr=said
        )
    host.roles.append(process)
    return process


def said(host: Host) -> str:
    return (host.folder.parent / "scheduler.said").read_text()


def decisions(host: Host) -> list[dict[str, Any]]:
    return host.on_the_fleet(lambda fleet: fleet.decisions(1000))


@pytest.fixture
def host(tmp_path: Path) -> Any:
    with hosted(tmp_path, [*QUICK, *SLOWER, *BRISK]) as made:
        yield made


@pytest.mark.timeout(600)
def test_one_slot_is_shared_by_all_pools_and_the_run_goes_on(host: Host) -> None:
    host.begin()
    host.start("gpu0", "rollout")
    scheduler(host)
    until(lambda: host.version() >= 2, 120)
    before = host.version()
    until(lambda: host.version() >= before + 2, 120)
    moves = [move for one in decisions(host) for move in one["moves"]]
    assert {move["target"] for move in moves} == {"rollout", "train"}
    assert all(one["sentence"] for one in decisions(host))


@pytest.mark.timeout(600)
def test_two_slots_are_given_to_both_pools_and_a_dry_run_moves_nothing(host: Host) -> None:
    host.begin()
    host.start("gpu0", "rollout")
    host.start("gpu1", "rollout")
    host.reach("gpu0", state="serving")
    host.reach("gpu1", state="serving")
    dry = scheduler(host, "--dry-run")
    until(lambda: "train" in said(host), 60)
    dry.terminate()
    dry.wait(20)
    assert decisions(host) == []
    assert {host.said(slot)["pool"] for slot in ("gpu0", "gpu1")} == {"rollout"}
    scheduler(host)
    until(lambda: host.version() >= 3, 120)


@pytest.mark.timeout(600)
def test_of_two_schedulers_one_leads_and_the_other_takes_over_when_it_is_killed(host: Host) -> None:
    host.begin()
    host.start("gpu0", "rollout")
    host.start("gpu1", "train")
    first, second = scheduler(host), scheduler(host)
    until(lambda: "watching:" in said(host) and "leading, epoch 1" in said(host), 60)
    leader = until(lambda: host.on_the_fleet(lambda fleet: fleet.client.hget(fleet.prefix + "leader", "holder")), 20)
    killed = first if leader.decode().endswith(f".{first.pid}") else second
    killed.kill()
    killed.wait(10)
    until(lambda: "leading, epoch 2" in said(host), 60)
    before = host.version()
    until(lambda: host.version() >= before + 3, 60)


@pytest.mark.timeout(600)
def test_a_pinned_slot_stays_where_a_person_put_it(host: Host) -> None:
    host.begin()
    host.start("gpu0", "rollout")
    host.start("gpu1", "rollout")

    async def pin(fleet: Any) -> None:
        for slot in ("gpu0", "gpu1"):
            seen = (await fleet.wanted(slot)).epoch
            await fleet.assign(slot, "rollout", seen=seen, reason="by hand", by="test", pin="pin")

    host.reach("gpu0", state="serving")
    host.reach("gpu1", state="serving")
    host.on_the_fleet(pin)
    scheduler(host)
    until(lambda: len(decisions(host)) >= 4, 60)
    assert [move for one in decisions(host) for move in one["moves"]] == []
    assert {host.said(slot)["pool"] for slot in ("gpu0", "gpu1")} == {"rollout"}
