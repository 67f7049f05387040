"""`tidemill simulate`: workloads by name or from a recorded run; figures, JSON and a picture that fits a document."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from broker.archive import Archive
from broker.errors import Misconfigured
from deploy.commands import bars
from deploy.commands.simulation import simulate
from deploy.recorded_load import recorded_load
from deploy.run_settings import RunSettings
from deploy.simulate_command import loads_named, perform, scheduler_of
from scheduler.settings import SchedulerSection
from scheduler.simulation.controllers import ours
from scheduler.simulation.workload import Workload
from scheduler.simulation.workloads import WORKLOADS
from tests.contract.broker_world import group, rolled
from tests.unit.test_archive import trained


def life(role: str, worked_s: float) -> dict[str, str | float]:
    """Of a process that had worked for a second when the run opened."""
    return {"role": role, "first_busy_s": 1.0, "first_wait_s": 2.0, "busy_s": 1.0 + worked_s, "wait_s": 9.0}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run of eight versions whose responses doubled."""
    RunSettings().save(tmp_path)
    steps = [
        {
            "version": version,
            "seconds": 5.0,
            "reward": 0.5,
            "groups": 4,
            "rollouts": 32,
            "tokens": 4 * 100 * (1 + version / 8),
            "staleness": {"mean": 0.5, "max": 1, "counts": {"0": 2, "1": 2}},
            "train_s": 2.0,
            "publish_s": 0.1,
        }
        for version in range(1, 9)
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
    counts = {"train.admitted": 40, "train.trained": 32, "train.retired.no_signal": 8}
    lives = {
        "trainer-0 1": life("trainer", 16.0),
        "slot-1 2": life("rollout", 20.0),
        "slot-2 3": life("rollout", 12.0),
        "slot-2 4": life("judge", 3.0),
        "reward-0 5": life("reward", 1.0),
    }
    snapshot = {"elapsed_s": 40.0, "version": 8, "counts": counts, "lives": lives, "finished": "done"}
    (tmp_path / "snapshot.json").write_text(json.dumps(snapshot))
    return tmp_path


def test_workloads_come_by_name_shortened_and_with_another_price_of_moving() -> None:
    drift, constant = loads_named(["drift", "constant"], None, 8, 10, 3.0)
    assert (drift.name, constant.name, drift.versions) == ("drift", "constant", 10)
    assert {shape.move_s for shape in drift.shapes.values()} == {3.0}
    assert [load.name for load in loads_named(["all"], None, 8, 0, -1.0)] == list(WORKLOADS)


@pytest.mark.parametrize(
    ("slots", "versions", "said"),
    [(2, 0, "--slots 2"), (10_001, 0, "3 to 10000 slots"), (8, 3, "--versions 3 is no run")],
)
def test_numbers_that_make_no_run_are_refused(slots: int, versions: int, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        loads_named(["drift"], None, slots, versions, -1.0)


def test_a_recorded_run_becomes_a_workload_of_its_own_costs(recorded: Path) -> None:
    load = recorded_load(recorded, slots=4)
    assert (load.versions, load.groups(4), load.staleness) == (8, 4, 1)
    assert load.surviving == ((0.0, 0.8), (1.0, 0.8))
    assert [value for _, value in load.costs["train"]] == [pytest.approx(0.5)] * 8
    first, last = load.costs["rollout"][0][1], load.costs["rollout"][-1][1]
    assert last / first == pytest.approx(2 / 1.125), "in proportion to tokens"
    sampled = sum(value for _, value in load.costs["rollout"]) / 8 / 0.8 * 32
    assert sampled == pytest.approx(20.0 + 12.0), "all seconds that producers were busy"
    assert sum(value for _, value in load.costs["judge"]) / 8 / 0.8 * 32 == pytest.approx(3.0 + 1.0)


def test_a_recording_says_how_many_groups_a_slot_holds_and_how_much_they_differ(recorded: Path) -> None:
    kept = json.loads((recorded / "snapshot.json").read_text())
    told = {"slot-1 2": (2.0, 0.25), "slot-2 3": (4.0, 0.75), "slot-2 4": (8.0, 0.0), "reward-0 5": (64.0, 0.0)}
    for name, (places, half_at) in told.items():
        kept["lives"][name] |= {"places": places, "half_at": half_at}
    (recorded / "snapshot.json").write_text(json.dumps(kept))
    archive = Archive(recorded / "groups", "trainer-0")
    for version, siblings in ((1, 2), (1, 4), (2, 8), (2, 16)):  # three tokens each
        trained(archive, rolled(group(f"story/{version}/{siblings}", size=siblings)), version)
    load = recorded_load(recorded, slots=4)
    assert {pool: (shape.places, shape.half_at) for pool, shape in load.shapes.items()} == {
        "rollout": (3.0, 0.5),
        "judge": (8.0, 0.0),
        "train": (1.0, 0.0),
    }
    assert load.spread == pytest.approx(math.log(2) / math.sqrt(2)), "versions differ more than groups of one"


def test_a_recorded_run_is_simulated_as_it_was_scheduled(recorded: Path) -> None:
    settings = RunSettings()
    scheduler = settings.scheduler.model_copy(update={"every_s": 1.0, "dwell_s": 5.0, "memory_s": 10.0})
    settings.model_copy(update={"scheduler": scheduler}).save(recorded)
    found = ours(recorded_load(recorded, slots=4), scheduler_of("proportional", recorded))
    assert (found.name, found.every_s, found.rules.dwell_s, found.rates.memory_s) == ("proportional", 1.0, 5.0, 10.0)
    assert scheduler_of("pressure", None) == SchedulerSection()
    with pytest.raises(Misconfigured, match="placement"):
        scheduler_of("presure", recorded)


def test_what_a_recording_does_not_say_keeps_a_workloads_own_value(recorded: Path) -> None:
    load, usual = recorded_load(recorded, slots=4), Workload(name="", about="")
    assert (load.shapes, load.spread) == (usual.shapes, usual.spread)


def test_a_run_too_short_to_say_anything_is_refused(recorded: Path) -> None:
    lines = (recorded / "steps.jsonl").read_text().splitlines()[:2]
    (recorded / "steps.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(Misconfigured, match="holds 2 timed versions"):
        recorded_load(recorded, slots=4)


def test_a_simulation_is_told_in_a_table_in_json_and_in_a_picture(recorded: Path, tmp_path: Path) -> None:
    words, heard = io.StringIO(), list[str]()
    loads = [replace(WORKLOADS["drift"], versions=6), recorded_load(recorded, slots=4)]
    console = Console(file=words, width=200)
    perform(loads, 4, 1, SchedulerSection(), tmp_path / "out", console, heard.append, as_json=False)
    told = words.getvalue()
    assert heard[0] == "drift, 4 slots: searching the best static split"
    for system in ("pressure", "oracle", "best static split", "synchronous co-location", "utilisation rule"):
        assert system in told
    facts = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert [one["versions"] for one in facts] == [6, 8]
    pictures = sorted((tmp_path / "out").glob("*.png"))
    assert len(pictures) == 2
    assert all(1000 < picture.stat().st_size < 200_000 for picture in pictures)


def test_json_alone_is_printed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(["constant"], slots=4, seeds=1, versions=6, placement="proportional", trace="", out=None, as_json=True)
    printed = capsys.readouterr()
    (facts,) = json.loads(printed.out)
    assert facts["systems"]["proportional"]["groups_per_s"]["mean"] > 0
    assert printed.err.startswith("constant, 4 slots: searching the best static split\n"), "a pipe hears of it too"


def test_lines_about_long_work_come_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100, 200))
    monkeypatch.setattr(bars.time, "monotonic", lambda: next(clock))
    say = bars.now_and_then()
    for number in range(20):
        say(f"{number}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0"
    assert all(int(after) - int(before) >= 4 for before, after in pairwise(lines))
