"""A trainer that was replaced while it was away gives way, and so does its slot: nobody throws the successor out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, [*QUICK, *SLOWER]) as made:
        yield made


@pytest.mark.timeout(240)
def test_a_trainer_that_wakes_up_with_dead_connections_leaves_the_run_to_its_successor(host: Host) -> None:
    host.begin()
    host.start("gpu0", "train")
    host.start("gpu1", "rollout")
    until(lambda: host.version() >= 2, 60)
    away = host.reach("gpu0", state="serving", pool="train")["pid"]
    os.kill(away, signal.SIGSTOP)
    host.start("gpu2", "train")
    successor = host.reach("gpu2", state="serving", pool="train")["pid"]
    with redis.Redis.from_url(host.url) as client:
        client.client_kill_filter(_type="normal")
    os.kill(away, signal.SIGCONT)
    vacant = host.reach("gpu0", state="vacant", pool="")
    assert vacant["epoch"] == 1, "nobody ordered it away"
    before = host.version()
    until(lambda: host.version() >= before + 3, 60)
    assert host.said("gpu2")["pid"] == successor
    host.order("gpu0", "rollout")
    host.reach("gpu0", state="serving", pool="rollout")
