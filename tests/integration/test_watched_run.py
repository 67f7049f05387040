"""A real run as an operator sees it: scraped over HTTP while it runs, its logs, its curves; stopped and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.measures import MEASURES
from broker.redis_broker import RedisBroker
from deploy.log_lines import Filter, Story
from deploy.records import records
from deploy.run_check import saved_run
from deploy.server import reachable
from tests.command_line import tidemill
from tests.integration.test_launcher import SLOWER, Launched, left_over, made, report_of, until
from tests.integration.test_slots_run import BRISK
from tests.unit.test_scalars import curves

__all__ = ["made"]

Samples = dict[tuple[str, ...], float]
"""(name, role, further labels' values in order of their names) → value"""

NAMES = ("run", "role", "process", "slot", "le")
PROCESSES = {"feeder-0", "reward-0", "rollout-0", "trainer-0", "launcher"}


def targets(folder: Path) -> dict[str, str]:
    """Process → address, as Prometheus would find them."""
    files = (folder.parent / "metrics").glob(f"{folder.name}.*.json")
    return {one["labels"]["process"]: one["targets"][0] for path in files for one in json.loads(path.read_text())}


def scraped(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["role"], *(v for k, v in sorted(sample.labels.items()) if k not in NAMES)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def everything(folder: Path, *, but: str = "") -> Samples:
    found: Samples = {}
    for process, address in targets(folder).items():
        if process != but:
            found |= scraped(address)
    return found


def command(folder: Path, *words: str) -> str:
    answer = tidemill(*words, runs=folder.parent)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def resting(folder: Path) -> tuple[Samples, Any] | None:
    """What all but the stopped producer say, and books and backlogs read between two scrapes that say the same."""
    first = counted(everything(folder, but="rollout-0"))
    books = asyncio.run(asked(folder))
    second = counted(everything(folder, but="rollout-0"))
    waits = first["tidemill_backlog_groups", "feeder", "rollouts"] == first["tidemill_groups_in_hand", "trainer"] == 0
    return (second, books) if first == second and waits else None


def counted(samples: Samples) -> Samples:
    """What groups and steps change, and time alone does not."""
    by_time = {name for name in samples if "process_" in name[0] or name[0].endswith(("seconds_sum", "seconds_total"))}
    return {name: value for name, value in samples.items() if name not in by_time and "_bucket" not in name[0]}


@pytest.mark.timeout(300)
def test_a_run_can_be_watched_from_its_start_through_a_resume_to_its_end(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER, "prompts.eval.size=8", "prompts.eval.every=4")
    launched = Launched(folder)
    launched.reach(5, within_s=60)
    assert set(targets(folder)) == PROCESSES
    assert_everybody_tells(everything(folder))

    os.kill(launched.pid_of("rollout-0"), signal.SIGSTOP)
    assert_agrees_with_the_books(folder, *until(lambda: resting(folder), 20))
    os.kill(launched.pid_of("rollout-0"), signal.SIGCONT)

    launched.interrupt()
    assert launched.end() == 130, launched.text()
    assert targets(folder) == {}
    stopped = report_of(folder)["steps"]

    again = Launched(folder)
    again.reach(stopped + 5, within_s=60)
    again.interrupt()
    assert again.end() == 130, again.text()
    assert left_over(folder) == []
    assert_logs_carry_their_names(folder)
    assert_logs_are_told(folder)
    assert_curves_are_whole(folder)


@pytest.mark.timeout(200)
def test_a_fleet_tells_of_its_slots_and_of_who_moves_them(made: Callable[..., Path]) -> None:
    folder = made("scheduler.slots=2", *BRISK, *SLOWER, "prompts.eval.size=0")
    launched = Launched(folder)
    launched.reach(2, within_s=60)
    processes = {
        "slot-0",
        "slot-0.worker",
        "slot-1",
        "slot-1.worker",
        "scheduler-0",
        "feeder-0",
        "reward-0",
        "launcher",
    }
    until(lambda: set(targets(folder)) == processes, 30)
    until(lambda: everything(folder).get(("tidemill_slots", "scheduler", "train", "serving")) == 1, 30)
    told = everything(folder)
    for pool in ("train", "rollout"):
        assert told["tidemill_slot_state", "slot", pool, "serving"] == 1
        assert told["tidemill_move_seconds_count", "slot", "none", pool] == 1
        assert told["tidemill_slots_wanted", "scheduler", pool] == 1
    assert told["tidemill_scheduler_leading", "scheduler"] == 1
    assert told["tidemill_scheduler_cycles_total", "scheduler"] > 0
    launched.interrupt()
    assert launched.end(within_s=60) == 130, launched.text()
    assert targets(folder) == {}
    lines = list(Story(folder, Filter(slot="slot-1")).so_far())
    assert {(one["process"], one["role"]) for one in lines} == {("slot-1", "rollout"), ("slot-1.worker", "slot")}
    assert {one["run"] for one in lines} == {folder.name}


def assert_everybody_tells(samples: Samples) -> None:
    """All that a run without slots, accidents or retries has to tell."""
    told = {(name, role) for name, role, *_ in samples}
    rare = {"leases_lost", "adopted_groups", "canary_failures", "process_ends", "learning"}
    rare |= {"weight_sync_seconds", "run_weight_sync_seconds"}  # a version may be overtaken before it is served
    for what in MEASURES:
        name = f"{what.shown}_count" if what.kind == "histogram" else what.shown
        for role in what.by.split(", "):
            if role in ("slot", "scheduler", "rank", "judge") or what.name in rare:
                continue
            assert (name, role) in told, f"{role} says nothing of {name}"
    assert samples["tidemill_server_up", "feeder"] == 1
    assert samples["tidemill_processes", "launcher"] == len(PROCESSES) - 1


def assert_agrees_with_the_books(folder: Path, samples: Samples, held: Any) -> None:
    books, backlog = held
    fates = {name[2:]: value for name, value in samples.items() if name[0] == "tidemill_run_groups_total"}
    assert {name: value for name, value in fates.items() if value} == {
        (fate, kind, ".".join(reason)): number
        for kind, fate, *reason, number in ((*name.split(".", 2), n) for name, n in books.items())
        if fate != "open"
    }
    assert {stream: samples["tidemill_backlog_groups", "feeder", stream] for stream in backlog} == backlog
    trained, evaluated = books["train.trained"], books["eval.retired.evaluated"]
    assert samples["tidemill_groups_total", "trainer"] == trained
    assert samples["tidemill_steps_total", "trainer"] == len(records(folder / "steps.jsonl")) == trained / 8
    assert samples["tidemill_staleness_versions_count", "trainer"] == trained
    assert samples["tidemill_settled_groups_total", "reward", "forwarded"] == trained + backlog["scored"]
    assert samples["tidemill_settled_groups_total", "reward", "retired"] == evaluated
    assert samples["tidemill_hand_over_seconds_count", "trainer", "scored"] == trained + backlog["scored"]
    assert samples["tidemill_groups_total", "feeder"] == books["train.admitted"] + books["eval.admitted"]


async def asked(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    with reachable(folder, saved_run(folder).broker) as url:
        broker = await RedisBroker.connect(url, folder.name)
    found = dict((await broker.books()).counts), await broker.backlog()
    await broker.close()
    return found


def assert_logs_carry_their_names(folder: Path) -> None:
    """Each line says who speaks, once; what is about a version or a group says which."""
    for path in (folder / "logs").glob("*.jsonl"):
        lines = records(path)
        assert len(lines) == len(path.read_text().splitlines()) > 0
        assert {(one["run"], one["process"]) for one in lines} == {(folder.name, path.stem)}
        assert all({"role", "level", "timestamp", "event"} <= one.keys() for one in lines)
    by_event: dict[str, list[dict[str, Any]]] = {}
    for one in Story(folder, Filter()).so_far():
        by_event.setdefault(one["event"], []).append(one)
    assert all("group" in one and "version" in one for one in by_event["first rollouts"])
    versions = [one["version"] for one in by_event["trained"]]
    assert versions == [one["version"] for one in records(folder / "steps.jsonl")]


def assert_logs_are_told(folder: Path) -> None:
    told = [json.loads(line) for line in command(folder, "logs", "--json").splitlines()]
    assert [one["timestamp"] for one in told] == sorted(one["timestamp"] for one in told)
    assert {one["process"] for one in told} >= PROCESSES
    words = command(folder, "logs", "--role", "trainer", "--tail", "3").splitlines()
    assert len(words) == 3
    assert all("trainer-0" in line and not line.startswith("{") for line in words)
    (first,) = [one for one in told if one["event"] == "first rollouts"][:1]
    about = command(folder, "logs", "--group", first["group"], "--json").splitlines()
    assert first in map(json.loads, about)


def assert_curves_are_whole(folder: Path) -> None:
    """One value a step, before and after the resume, the same as in the records."""
    steps = {one["version"]: one for one in records(folder / "steps.jsonl")}
    found = curves(folder)
    assert [step for step, _ in found["reward/mean"]] == sorted(steps)
    assert [value for _, value in found["length/mean"]] == [
        round(one["tokens"] / one["rollouts"], 6) for _, one in sorted(steps.items())
    ]
    measured = [(one["version"], one["accuracy"]) for one in records(folder / "evaluations.jsonl")]
    assert found["eval/accuracy"] == measured


def test_logs_are_followed_also_those_of_processes_that_come_later(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    line = {"run": "r", "role": "reward", "level": "info"}

    def write(process: str, at: str, event: str) -> None:
        with (logs / f"{process}.jsonl").open("a") as file:
            file.write(json.dumps({**line, "process": process, "timestamp": at, "event": event}) + "\n")

    write("reward-0", "2026-01-01T00:00:02Z", "second")
    write("reward-1", "2026-01-01T00:00:01Z", "first")
    (logs / "reward-0.err").write_text(
        '{"event": "a warning, which stands among the records too"}\nSegmentation fault\n'
    )
    story, later = Story(tmp_path, Filter()), iter([("reward-0", "fourth"), ("reward-2", "third")])
    assert [one["event"] for one in story.so_far()] == ["first", "second", "Segmentation fault"]

    def meanwhile(_: float) -> None:
        for process, event in later:
            write(process, f"2026-01-01T00:00:0{3 if event == 'third' else 4}Z", event)

    coming = story.coming(meanwhile)
    assert [next(coming)["event"], next(coming)["event"]] == ["third", "fourth"]
