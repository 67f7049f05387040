"""A slot whose controller ends again and again with the same passing fault: it is given up, and its reason is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.fleet import Served
from tests.integration.test_launcher import QUICK, SLOWER
from tests.integration.test_slots import Host, hosted


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, [*QUICK, *SLOWER, "scheduler.crash_limit=2"]) as made:
        yield made


@pytest.mark.timeout(600)
def test_a_fault_that_never_passes_parks_its_slot_with_the_reason_until_it_is_assigned_anew(host: Host) -> None:
    settings = json.loads((host.folder / "settings.json").read_text())
    settings["pools"] = {"rollout": {"command": "tests.integration.passing_fault"}}
    (host.folder / "settings.json").write_text(json.dumps(settings))
    host.begin()
    host.start("gpu0", "rollout")
    parked = host.reach("gpu0", state="parked", pool="rollout", pid=0)
    assert "a passing fault" in parked["detail"] and "2 times in a row" in parked["detail"]
    assert "the licence server is full" in (host.folder / "logs" / "gpu0.err").read_text()
    host.order("gpu0", "train")
    host.reach("gpu0", state="serving", pool="train")


@pytest.mark.timeout(600)
def test_a_slot_that_was_given_up_tries_again_when_a_run_is_asked_for_anew(host: Host) -> None:
    path = host.folder / "settings.json"
    good = path.read_text()
    path.write_text(json.dumps({**json.loads(good), "pools": {"rollout": {"command": "no_such_module"}}}))
    host.begin()
    host.start("gpu0", "rollout")
    parked = host.reach("gpu0", state="parked", pool="rollout", pid=0)
    path.write_text(good)
    again = Served(run=host.folder.name, folder=str(host.folder), url=host.url, asked="again")
    host.on_the_fleet(lambda fleet: fleet.serve(again))
    host.start("gpu1", "train")
    host.reach("gpu0", state="serving", pool="rollout", epoch=parked["epoch"], detail="")
