"""What must be true of a run after its end, whatever died in it, from its records alone.

For: the fate of every group that was ever admitted, by name; the lineage; versions and staleness. Not for: the
counters of the report, which balance by construction.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from broker.archive import Closed, closed_groups
from broker.settings import run_folder_settings
from broker.streams import WORK_STREAMS, Keys
from broker.weights import Manifest, VersionStore, chain, read_batch
from deploy.inspection import Records, dead, open_groups
from deploy.run_settings import RunSettings
from deploy.server import reachable
from producers.prompt_sources import create_sources
from tests.faults.strikes import Observed
from tests.faults.worlds import World
from tests.integration.test_launcher import left_over, report_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """Every training group of a run by what became of it."""

    admitted: Counter[str]
    trained: Counter[str]
    retired: dict[str, str]
    """Group → reason."""
    buried: Counter[str]
    open: Counter[str]
    counts: dict[str, int]
    """What the server counted."""
    entries: int
    """In the three work streams together."""
    live_entries: int
    """Open groups, evaluations too, that have an entry."""


def lineage_of(folder: Path) -> list[Manifest]:
    """The surviving versions from 1 on."""
    manifests = VersionStore(folder / "store").manifests()
    newest = max(manifests, key=lambda one: (one.version, one.epoch))
    return [one for one in chain(manifests, newest.version, newest.epoch) if one.version > 0]


def fates_of(folder: Path) -> Fates:
    settings = RunSettings.model_validate(run_folder_settings(folder))
    sources = create_sources(settings.prompts, seed=settings.run.seed)
    with reachable(folder, settings.broker) as url:
        server, keys = Records(url, folder.name), Keys(folder.name)
        lines = open_groups(server)
        buried = dead(server)
        cursor = int(server.hash(keys.state)["cursor"])
        counts = {name: int(value) for name, value in server.hash(keys.counts).items()}
        entries = sum(int(server.client.xlen(keys.stream(name))) for name in WORK_STREAMS)
    trained = Counter(group for one in lineage_of(folder) for group in one.groups)
    return Fates(
        admitted=Counter(sources.at(place).id for place in range(cursor)),
        trained=trained,
        retired=retired_of(folder),
        buried=Counter(line["group"] for line in buried if line["kind"] == "train"),
        open=Counter(line["group"] for line in lines if line["kind"] == "train"),
        counts=counts,
        entries=entries,
        live_entries=sum(line["stream"] != "" for line in lines),
    )


def retired_of(folder: Path) -> dict[str, str]:
    """From the archive, where a group's last record counts: an earlier one's closing may have been lost."""
    last: dict[str, Closed] = {}
    for closed in sorted(closed_groups(folder / "groups"), key=lambda one: one.at):
        if closed.group.kind == "train":
            last[closed.group.id] = closed
    return {group: closed.reason for group, closed in last.items() if closed.fate == "retired"}


def assert_every_group_has_one_fate(folder: Path) -> Fates:
    fates = fates_of(folder)
    assert max(fates.trained.values()) == 1, "a group trained twice"
    assert fates.trained + Counter(list(fates.retired)) + fates.buried + fates.open == fates.admitted
    reasons = Counter(f"train.retired.{reason}" for reason in fates.retired.values())
    counted = {name: number for name, number in fates.counts.items() if number and name.startswith("train.")}
    named = {"admitted": fates.admitted, "trained": fates.trained, "buried": fates.buried, "open": fates.open}
    assert counted == {f"train.{name}": groups.total() for name, groups in named.items() if groups} | reasons
    assert fates.entries == fates.live_entries, "an entry without a group, or a group without an entry"
    return fates


def assert_versions_went_forward(folder: Path, world: World, seen: list[int]) -> None:
    """In the store, in the steps on record, and wherever the launcher looked."""
    lineage = lineage_of(folder)
    assert [one.version for one in lineage] == list(range(1, world.steps + 1))
    epochs = [one.epoch for one in lineage]
    assert epochs == sorted(epochs)
    steps = [json.loads(line)["version"] for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)), "a version on record came again, or after a later one"
    assert set(range(1, world.steps + 1)) - set(steps) <= {one.version for one in lineage_ends(lineage)}
    assert seen == sorted(seen) and seen[-1] == world.steps, seen


def lineage_ends(lineage: list[Manifest]) -> list[Manifest]:
    """The last version of each epoch: its trainer may have died before it wrote the step down."""
    return [one for one, after in pairwise(lineage) if after.epoch != one.epoch]


def assert_bound_held(folder: Path, staleness: int) -> None:
    """By the versions that sampled each trained action, as the batches in the store tell."""
    store = VersionStore(folder / "store")
    for one in lineage_of(folder):
        groups = read_batch(store.folder(one.path))
        assert tuple(group.id for group in groups) == one.groups
        for group in groups:
            assert group.rollouts is not None
            oldest, newest = group.rollouts.oldest_version, group.rollouts.newest_version
            assert one.version - 1 - staleness <= oldest <= newest <= one.version - 1, (one.version, group.id)


def assert_went_well(run: Observed, world: World, *, staleness: int = 1) -> None:
    """All of it, and nothing is left behind."""
    folder = run.folder
    assert left_over(folder) == []
    fates = assert_every_group_has_one_fate(folder)
    assert fates.trained.total() == world.groups * world.steps
    assert_versions_went_forward(folder, world, run.seen)
    assert_bound_held(folder, staleness)
    assert "replay differs" not in said_by_trainers(folder)
    report = report_of(folder)
    assert report["steps"] == world.steps
    accuracy = report["held_out_accuracy"]
    assert not world.learns or accuracy["end"] >= accuracy["start"] + 0.08, accuracy


def said_by_trainers(folder: Path) -> str:
    """Lines that trainers wrote, on slots too."""
    lines = [
        line for log in sorted((folder / "logs").glob("*.jsonl")) for line in log.read_text().splitlines(keepends=True)
    ]
    return "".join(line for line in lines if '"role": "trainer"' in line)
