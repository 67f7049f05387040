"""A version that was committed has its line, also when the trainer died before it could write it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from broker.contract import Books
from broker.messages import Group
from broker.weights import Manifest, VersionStore
from consumers.learners.base import StepResult
from consumers.learners.scripted import ScriptedLearner
from consumers.publication import Publication
from consumers.staleness import spread
from consumers.step_record import StepRecord
from tests.contract.broker_world import group, judged, rolled

NOBODY = Books(tick=0, cursor=0, cursor_value="", open={}, counts={})


def lineage(store: VersionStore, batches: dict[int, list[Group]]) -> list[Manifest]:
    learner = ScriptedLearner()
    publication = Publication(None, store, learner, 9, canaries=((np.array([1], np.int32), np.array([2], np.int32)),))  # type: ignore[arg-type]
    return [
        publication.write(version, 1, 1, groups, seed=0, books=NOBODY) for version, groups in sorted(batches.items())
    ]


def lines(path: Path) -> dict[int, dict[str, object]]:
    found: dict[int, dict[str, object]] = {}
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["version"]] = record
    return found


def test_a_missing_line_is_written_from_what_the_batch_tells(tmp_path: Path) -> None:
    groups = {version: [judged(rolled(group(f"g/{version}/{i}"), version - 1)) for i in range(3)] for version in (1, 2)}
    store = VersionStore(tmp_path / "store")
    manifests = lineage(store, {0: [], **groups})
    records = StepRecord(tmp_path / "steps.jsonl")
    whole = StepResult(metrics={"loss": 0.5})
    records.step(1, groups[1], spread([0, 0, 0], 0), whole, wait_s=1, train_s=2, publish_s=3)
    with records.path.open("a") as file:
        file.write('{"version": 2, "rew')
    StepRecord(records.path).recover(manifests, store)
    found = lines(records.path)
    assert found[1]["seconds"] == 6
    assert found[2] | {"at": 0} == {
        "version": 2,
        "at": 0,
        "seconds": 0.0,
        "reward": 0.5,
        "staleness": {"mean": 0.0, "max": 0, "counts": {"0": 3}},
        "groups": 3,
        "rollouts": 6,
        "tokens": 18,
        "zero_signal": 0,
        "recovered": True,
    }
    before = records.path.read_text()
    StepRecord(records.path).recover(manifests, store)
    assert records.path.read_text() == before
