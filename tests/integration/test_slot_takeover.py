"""A slot that is started on another host while its first one is away: once that is back, it must learn it and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.errors import Fenced
from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, [*QUICK, *SLOWER]) as made:
        yield made


@pytest.mark.timeout(600)
def test_a_host_that_comes_back_after_its_slot_was_taken_over_ends_with_its_controller(host: Host) -> None:
    host.begin()
    host.start("gpu1", "train")
    old = host.start("gpu0", "rollout")
    controller = host.reach("gpu0", state="serving", node="gpu0@here")["pid"]
    os.kill(old.pid, signal.SIGSTOP)  # away, and so is all it would say; what it started works on
    try:
        new = host.start("gpu0", "rollout", host="there")
        taken = host.reach("gpu0", state="serving", node="gpu0@there")
        assert Path(f"/proc/{controller}").exists()
    finally:
        os.kill(old.pid, signal.SIGCONT)
    assert old.wait(30) == Fenced.exit_code
    assert "slot gpu0 is hosted by gpu0@there now" in (host.folder.parent / "gpu0.worker").read_text()
    until(lambda: not Path(f"/proc/{controller}").exists(), 20)
    before = host.version()
    until(lambda: host.version() >= before + 2, 60)
    assert (host.said("gpu0")["node"], host.said("gpu0")["pid"], new.poll()) == ("gpu0@there", taken["pid"], None)
