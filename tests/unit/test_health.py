"""Health is progress: what reports and finishes nothing of what it holds is not well."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from broker.reports import SILENT_S
from deploy.health import STILL_S, judged, memory_of, remembered
from deploy.place import PLACE_VARIABLE, place_of
from deploy.whole_file import write_whole


def facts(**said: Any) -> dict[str, Any]:
    return {"age_s": 0.5, "stage": "sampling", "moves": [7, 1], "holds": True, **said}


def test_who_reports_and_finishes_work_is_well() -> None:
    _, memory = judged(facts(), {}, now=0)
    wrong, _ = judged(facts(moves=[7, 2]), memory, now=10 * STILL_S)
    assert wrong == ""


def test_who_holds_work_and_finishes_none_of_it_is_not_however_often_it_reports() -> None:
    _, memory = judged(facts(), {}, now=0)
    for now in range(0, int(STILL_S), 20):
        wrong, memory = judged(facts(), memory, now)
        assert wrong == ""
    wrong, _ = judged(facts(), memory, STILL_S + 1)
    assert wrong == "has finished nothing for 121 s, says 'sampling'"


def test_who_has_nothing_to_do_is_well_for_as_long_as_that_lasts() -> None:
    _, memory = judged(facts(holds=False), {}, now=0)
    wrong, memory = judged(facts(holds=False), memory, now=10 * STILL_S)
    assert wrong == ""
    wrong, _ = judged(facts(), memory, now=10 * STILL_S + 1)
    assert wrong == "", "what it holds now it has held for a second"


def test_who_is_silent_or_says_that_something_is_wrong_is_not_well() -> None:
    assert judged(facts(age_s=SILENT_S + 1), {}, now=0)[0].startswith("has not reported for 11 s")
    assert judged(facts(wrong="is parked: no module"), {}, now=0)[0] == "is parked: no module"


def test_what_was_seen_is_remembered_of_each_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    named = [("gpus", "reward", "reward-1"), ("gpus", "reward", "reward-2"), ("others", "reward", "reward-1")]
    files = {memory_of(*one) for one in (*named, ("gpus", "slot", "../reward-1"))}
    assert len(files) == 4
    assert {file.parent for file in files} == {tmp_path}


def test_a_memory_that_cannot_be_read_is_none_and_is_written_whole(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    assert remembered(memory) == {}
    for damage in ('{"moves": [7, 1], "sin', "[]", "{}"):
        memory.write_text(damage)
        assert remembered(memory) == {}
    _, seen = judged(facts(), {}, now=5)
    write_whole(memory, json.dumps(seen))
    assert remembered(memory) == seen
    assert list(tmp_path.iterdir()) == [memory], "no draft is left"


def test_a_link_where_a_draft_goes_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others").write_text("theirs")
    (tmp_path / f".memory.{os.getpid()}.draft").symlink_to(tmp_path / "others")
    write_whole(tmp_path / "memory.json", "{}")
    assert (tmp_path / "others").read_text() == "theirs"
    assert (tmp_path / "memory.json").read_text() == "{}"


def test_a_process_reports_under_the_name_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE_VARIABLE, "reward-3")
    assert place_of("reward") == "reward-3"
    monkeypatch.delenv(PLACE_VARIABLE)
    assert place_of("reward") == f"reward-{socket.gethostname()}"
