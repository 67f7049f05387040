"""Log lines that carry their names, and counters that cannot exceed real time."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from broker.errors import Misconfigured
from broker.log_words import in_words
from broker.settings import LEVEL_VARIABLE
from broker.telemetry import FromLibraries, Meter, configure, join


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, FromLibraries)]:
        root.removeHandler(handler)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(folder: Path, process: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "logs" / f"{process}.jsonl").read_text().splitlines()]


def test_every_line_names_run_role_process_and_slot_also_from_another_thread(tmp_path: Path) -> None:
    log = configure(tmp_path / "demo", role="reward", process="reward-0", slot="cpu1")
    thread = threading.Thread(target=lambda: log.info("scored", group="a/0/1"))
    thread.start()
    thread.join()
    (line,) = lines(tmp_path / "demo", "reward-0")
    assert {k: line[k] for k in ("run", "role", "process", "slot", "event", "group", "level")} == {
        "run": "demo",
        "role": "reward",
        "process": "reward-0",
        "slot": "cpu1",
        "event": "scored",
        "group": "a/0/1",
        "level": "info",
    }
    assert "timestamp" in line


def test_off_a_terminal_only_warnings_reach_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = configure(tmp_path, role="reward", process="reward-0")
    log.info("calm")
    log.warning("worried", seconds=3)
    shown = capsys.readouterr().err
    assert "calm" not in shown
    assert json.loads(shown)["event"] == "worried"
    assert [line["event"] for line in lines(tmp_path, "reward-0")] == ["calm", "worried"]


def test_a_process_that_draws_on_the_console_keeps_its_log_off_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, role="launcher", process="launcher", console=False).error("grave")
    assert capsys.readouterr().err == ""
    assert [line["event"] for line in lines(tmp_path, "launcher")] == ["grave"]


def test_an_exception_is_kept_in_the_record(tmp_path: Path) -> None:
    log = configure(tmp_path, role="reward", process="reward-0")
    try:
        raise ValueError("seven")
    except ValueError:
        log.exception("failed")
    assert "ValueError: seven" in str(lines(tmp_path, "reward-0")[0]["exception"])


def test_a_line_says_the_group_and_version_that_were_bound_around_the_work(tmp_path: Path) -> None:
    log = configure(tmp_path, role="rollout", process="rollout-0")
    with bound_contextvars(group="a/0/1", version=7):
        log.warning("trying again")
    log.info("something else")
    first, second = lines(tmp_path, "rollout-0")
    assert (first["group"], first["version"]) == ("a/0/1", 7)
    assert not {"group", "version"} & second.keys()


def test_what_a_library_warns_of_is_one_line_like_ours_and_its_own_form_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loud = logging.getLogger("tests.loud")
    loud.addHandler(logging.StreamHandler(sys.stderr))
    loud.propagate = False
    configure(tmp_path, role="trainer", process="trainer-0")
    logging.getLogger("tests.loud").warning("%s is deprecated", "this")
    loud.info("chatter")
    (line,) = lines(tmp_path, "trainer-0")
    assert (line["event"], line["logger"], line["level"]) == ("this is deprecated", "tests.loud", "warning")
    assert (line["run"], line["role"]) == (tmp_path.name, "trainer")
    assert len(capsys.readouterr().err.splitlines()) == 1
    FromLibraries().emit(
        logging.makeLogRecord({"levelno": 30, "msg": "%d of 3", "args": ("all",)})
    )  # its own mistake ends nobody
    assert len(lines(tmp_path, "trainer-0")) == 1


def test_the_environment_says_from_which_level_on_lines_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "warning")
    log = configure(tmp_path, role="reward", process="reward-0")
    log.info("calm")
    log.warning("worried")
    assert [line["event"] for line in lines(tmp_path, "reward-0")] == ["worried"]
    monkeypatch.setenv(LEVEL_VARIABLE, "loud")
    with pytest.raises(Misconfigured, match="debug, info, warning or error"):
        configure(tmp_path, role="reward", process="reward-0")


def test_a_process_of_a_fleet_speaks_in_the_folder_of_the_run_it_works_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = configure(None, role="slot", process="gpu0.worker", slot="gpu0")
    log.info("no run yet")
    for run in ("first", "second"):
        join(tmp_path / run, {})
        log.info("serving", pool="rollout")
    for run in ("first", "second"):
        (line,) = lines(tmp_path / run, "gpu0.worker")
        assert (line["run"], line["slot"], line["event"]) == (run, "gpu0", "serving")
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_what_is_printed_already_is_kept_and_not_printed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = configure(None, role="scheduler", process="scheduler-0")
    join(tmp_path, {})
    log.info("said", sentence="stay: no move would help", printed=True)
    assert capsys.readouterr().err == ""
    (line,) = lines(tmp_path, "scheduler-0")
    assert (line["sentence"], "printed" in line) == ("stay: no move would help", False)


def test_a_person_reads_time_process_and_sentence() -> None:
    record = {"timestamp": "2026-01-01T10:20:30.456789Z", "run": "r", "role": "trainer", "process": "trainer-0"}
    told = in_words({**record, "level": "info", "event": "trained", "version": 3, "reward": 0.123456}, colours=False)
    assert re.fullmatch(r"\d\d:\d0:30\.456  trainer-0 +trained  version=3  reward=0\.1235", told)
    grave = in_words({**record, "level": "error", "event": "stopped", "reason": "two words"}, colours=False)
    assert grave.endswith("  error  stopped  reason='two words'")
    painted = in_words({**record, "level": "error", "event": "stopped"}, colours=True)
    assert "\x1b[33mtrainer-0" in painted
    assert "\x1b[31m" in painted
    failed = in_words(
        {**record, "level": "error", "event": "failed", "exception": "Traceback\nValueError"}, colours=False
    )
    assert failed.endswith("failed\nTraceback\nValueError")


def test_overlapping_work_counts_once_and_a_running_block_counts_already() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    clock.now = 1.0
    with meter.busy():
        clock.now = 2.0
        with meter.busy():
            clock.now = 4.0
        assert meter.busy_s == 3.0
    clock.now = 5.0
    assert (meter.busy_s, meter.wait_s) == (3.0, 2.0)
    assert meter.facts()["busy_s"] == 3.0
