"""A trainer that is moved away leaves a checkpoint of where it stands: whoever trains next replays nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.weights import VersionStore
from deploy.records import records
from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, [*QUICK, *SLOWER, "train.checkpoint_every=1000"]) as made:
        yield made


def test_a_trainer_that_leaves_leaves_a_checkpoint_and_the_next_replays_nothing(host: Host) -> None:
    host.begin()
    host.start("gpu0", "train")
    host.start("gpu1", "rollout")
    until(lambda: host.version() >= 3, 40)
    host.order("gpu0", "")
    host.reach("gpu0", state="vacant")
    left_at = host.version()
    checkpoints = VersionStore(host.folder / "store").checkpoints()
    assert [version for version, _, _ in checkpoints] == [left_at]
    host.order("gpu0", "train")
    until(lambda: host.version() > left_at, 40)
    told = records(host.folder / "logs" / "gpu0.jsonl")
    assert [line["event"] for line in told].count("caught up") == 2
    assert not [line for line in told if line["event"] == "replaying"]
