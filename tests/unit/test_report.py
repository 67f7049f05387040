"""A report is made from the run folder alone, also of a run that was killed in the middle of a line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.address import without_password
from deploy.closing import closing_lines, end_of, one_line, shipped_name
from deploy.curve import draw_curve
from deploy.records import GrowingFile, by_version, records
from deploy.report import make_report, percentile
from deploy.server import unfit


def step(version: int, **facts: Any) -> dict[str, Any]:
    usual = {"seconds": 0.5, "reward": 0.25, "groups": 4, "rollouts": 32, "tokens": 128}
    staleness = {"mean": 0.5, "max": 1, "counts": {"0": 2, "1": 2}}
    return {"version": version, **usual, "staleness": staleness, **facts}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    steps = [step(1), step(2, reward=0.5), step(2, reward=0.75)]
    torn = json.dumps(step(3))[:20]
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, steps)) + "\n" + torn)
    measured = [{"version": 0, "accuracy": 0.4}, {"version": 2, "accuracy": 0.9}]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in measured))
    counts = {"train.admitted": 20, "train.trained": 8, "train.open": 11, "train.retired.no_signal": 1}
    snapshot = {"elapsed_s": 60.0, "version": 2, "counts": counts, "busy_share": {"trainer": 0.9}, "finished": "done"}
    (tmp_path / "snapshot.json").write_text(json.dumps(snapshot))
    return tmp_path


def test_a_report_holds_the_numbers_a_program_asks_for(folder: Path) -> None:
    report = make_report(folder)
    assert report["run"] == folder.name
    assert (report["steps"], report["seconds"], report["finished"]) == (2, 60.0, "done")
    assert report["held_out_accuracy"] == {"start": 0.4, "end": 0.9}
    assert report["reward"] == {"start": 0.25, "end": 0.75}
    assert report["completions_per_s"] == 64.0
    assert report["staleness"] == {"mean": 0.5, "p95": 1, "max": 1}
    assert report["books"] == {"admitted": 20, "trained": 8, "retired": 1, "buried": 0, "open": 11}
    assert report["busy_share"] == {"trainer": 0.9}


def test_an_empty_folder_has_an_empty_report(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    assert (report["steps"], report["completions_per_s"], report["books"]["admitted"]) == (0, None, 0)
    assert report["held_out_accuracy"] == {"start": None, "end": None}
    assert draw_curve(tmp_path) is None


def test_the_curve_is_a_picture_and_the_end_names_it(folder: Path) -> None:
    path = draw_curve(folder)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    said = "\n".join(closing_lines(folder, make_report(folder), path))
    for words in (
        "held-out accuracy 0.400 → 0.900",
        "2 steps in 60 s, 64 completions/s",
        str(path),
        "tidemill dashboard",
    ):
        assert words in said
    assert "resume" not in said
    assert "inspect dead" not in said


def test_the_end_of_a_run_that_has_not_ended_names_what_goes_on_and_what_was_buried(folder: Path) -> None:
    report: dict[str, Any] = {**make_report(folder), "finished": ""}
    report["books"] = {**report["books"], "buried": 1024}
    said = list(closing_lines(folder, report, None))
    commands = said[said.index("next:") + 1 :]
    assert commands[0] == f"  tidemill resume {folder.name}"
    assert commands[1] == f"  tidemill inspect dead {folder.name}    # why 1,024 groups are buried"


def test_a_growing_file_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    growing = GrowingFile(path)
    assert growing.new_records() == []
    path.write_text('{"a": 1}\nplain text\n{"a"')
    assert growing.new_records() == [{"a": 1}]
    with path.open("a") as file:
        file.write(": 2}\n")
    assert growing.new_records() == [{"a": 2}]
    assert growing.new_records() == []
    assert records(path) == [{"a": 1}, {"a": 2}]


def test_of_a_repeated_version_the_last_record_counts() -> None:
    assert by_version([{"version": 2, "x": 1}, {"version": 1, "x": 2}, {"version": 2, "x": 3}]) == {
        1: {"version": 1, "x": 2},
        2: {"version": 2, "x": 3},
    }


@given(st.lists(st.integers(0, 9), min_size=1), st.floats(0.01, 1))
def test_the_percentile_is_reached_by_its_share(values: list[int], share: float) -> None:
    found = percentile(Counter(values).items(), share)
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_a_server_is_judged_by_what_it_says_of_itself() -> None:
    good = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction"}
    assert unfit(good) == ""
    assert unfit({**good, "redis_version": "7.2.4", "valkey_version": "9.1.2"}) == ""
    assert "Redis 6.2.14 is too old" in unfit({**good, "redis_version": "6.2.14"})
    assert "maxmemory-policy is allkeys-lru" in unfit({**good, "maxmemory_policy": "allkeys-lru"})


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://me:secret@host:6379/0", "redis://me:…@host:6379/0"),
        ("rediss://:se:cr@et@host/0", "rediss://:…@host/0"),
        ("redis://host/0?password=secret&db=1", "redis://host/0?password=…&db=1"),
        ("unix://:secret@/run/redis.sock", "unix://:…@/run/redis.sock"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("embedded", "embedded"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert without_password(address) == shown


def test_long_answers_are_cut_to_a_line() -> None:
    assert one_line("a\n b") == "a b"
    assert one_line("x" * 100) == "x" * 59 + "…"


def test_of_a_long_prompt_the_end_is_shown() -> None:
    assert end_of("Solve this problem: " * 5 + "3 + 4 =") == "…" + ("Solve this problem: " * 5 + "3 + 4 =")[-59:]
    assert end_of("12+34=") == "12+34="


def test_the_end_proposes_the_same_run_again(tmp_path: Path) -> None:
    assert shipped_name(tmp_path / "long-tail-20300101-120000") == "long-tail"
    assert shipped_name(tmp_path / "mine-20300101-120000") == ""
