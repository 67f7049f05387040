"""Log lines that carry their names, and counters that cannot exceed real time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from broker.telemetry import Meter, configure


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


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
