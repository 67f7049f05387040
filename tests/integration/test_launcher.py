"""`tidemill resume` on real processes with scripted engine and learner: to the end, through kills, and stopped in time.

The model folder is laid into each run beforehand, so that no test waits for a model to be built.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from broker import embedded_server
from deploy.records import records
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.command_line import among, command_line, tidemill

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *"0123456789+="]
QUICK = [
    "rollout.engine=scripted",
    "train.learner=scripted",
    "model.warm_start=none",
    "run.stop_when=''",
    "train.groups=8",
    "run.steps=20",
    "prompts.eval.size=8",
    "prompts.eval.every=10",
    "broker.lease_s=2",
    "broker.drain_s=5",
]
PATIENCE = 3.0
"""Deadlines of tests are written for a quiet machine, and so much longer on any."""
SLOWER = ["train.options={pace_s=0.1}", "run.steps=100000"]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A run folder with its model in it, ready to be resumed."""

    def make(*overrides: str) -> Path:
        folder = new_run_folder(load_run("addition", [*QUICK, *overrides]), tmp_path / "runs", datetime.now(UTC))
        lay_model(folder / "model")
        return folder.resolve()

    return make


def lay_model(folder: Path) -> None:
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")  # type: ignore[assignment]
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    config = {"model_type": "llama", "vocab_size": len(WORDS), "max_position_embeddings": 256, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weights": np.zeros(1, np.float32)}, folder / "model.safetensors")


class Launched:
    """A launcher process, and what it has printed."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        self.printed = folder.parent / f"{folder.name}.{time.monotonic_ns()}.printed"
        self.started = time.monotonic()
        with self.printed.open("wb") as out:
            self.process = subprocess.Popen(
                command_line(*(arguments or ("resume", folder.name))),
                stdout=out,
                stderr=subprocess.STDOUT,
                env=among(folder.parent, **environment),
            )

    def text(self) -> str:
        return self.printed.read_text()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, within_s: float = 30) -> int:
        """Its exit code."""
        try:
            return self.process.wait(PATIENCE * within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the launcher did not end within {PATIENCE * within_s:g} s:\n{self.text()}") from None

    def snapshot(self) -> dict[str, Any]:
        path = self.folder / "snapshot.json"
        return json.loads(path.read_text()) if path.is_file() else {"version": -1, "processes": {}}

    def pid_of(self, name: str) -> int:
        """Of the role's living process."""
        return until(lambda: self.snapshot()["processes"].get(name, {}).get("pid"))

    def reach(self, version: int, within_s: float = 25) -> None:
        until(lambda: self.process.poll() is not None or self.snapshot()["version"] >= version, within_s)
        assert self.process.poll() is None, self.text()


def until(condition: Callable[[], Any], within_s: float = 20) -> Any:
    """What it answers once that is something; `within_s` on cores of one's own, longer on those that others share."""
    deadline = time.monotonic() + PATIENCE * within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "the awaited state did not come"
        time.sleep(0.02)
    return found


def left_over(folder: Path) -> list[str]:
    """Living processes that have to do with this run."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().replace("\0", " ")
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if str(folder) in command and state != "Z":
            found.append(command)
    return found


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def assert_balanced(folder: Path) -> None:
    books = report_of(folder)["books"]
    assert books["admitted"] == books["trained"] + books["retired"] + books["buried"] + books["open"]
    trained = [step["groups"] for step in records(folder / "steps.jsonl")]
    assert books["trained"] <= sum(trained)


def test_a_run_goes_to_its_end_tells_how_it_went_and_leaves_nothing_behind(made: Callable[..., Path]) -> None:
    folder = made()
    launched = Launched(folder)
    until(lambda: "starting" in launched.text(), within_s=10)
    assert launched.end() == 0, launched.text()
    assert left_over(folder) == []
    assert not (folder / "redis" / "redis.sock").exists()
    report = report_of(folder)
    assert (report["steps"], report["finished"]) == (20, "trained 20 versions")
    assert report["books"]["trained"] == 160
    assert report["staleness"]["max"] <= 1
    assert set(report["busy_share"]) == {"trainer", "rollout", "reward", "feeder"}
    assert (folder / "curve.png").stat().st_size > 1000
    for words in ("finished: trained 20 versions", "held-out accuracy", "before:", "curve:", "tidemill dashboard"):
        assert words in launched.text()
    assert_balanced(folder)


def test_every_process_may_be_killed_and_the_run_goes_on(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER)
    launched = Launched(folder)
    launched.reach(3)
    for name in ("feeder-0", "reward-0", "rollout-0", "trainer-0"):
        before = launched.pid_of(name)
        os.kill(before, signal.SIGKILL)
        until(lambda name=name, before=before: launched.pid_of(name) != before)
        launched.reach(launched.snapshot()["version"] + 2)
        assert f"{name} was killed by signal 9 (SIGKILL)" in launched.text()
    server = embedded_server.pid(folder / "redis")
    assert server is not None
    os.kill(server, signal.SIGKILL)
    until(lambda: "it is back, on its data" in launched.text())
    launched.reach(launched.snapshot()["version"] + 2)
    launched.interrupt()
    assert launched.end() == 130, launched.text()
    assert left_over(folder) == []
    assert_balanced(folder)


def test_ctrl_c_drains_and_resume_goes_on_to_the_end(made: Callable[..., Path]) -> None:
    folder = made("train.options={pace_s=0.1}", "run.steps=60")
    launched = Launched(folder)
    launched.reach(5)
    launched.interrupt()
    assert launched.end() == 130, launched.text()
    assert "tidemill resume" in launched.text()
    assert left_over(folder) == []
    reached = report_of(folder)["steps"]
    assert 5 <= reached < 60
    again = Launched(folder)
    assert again.end() == 0, again.text()
    assert report_of(folder)["steps"] == 60
    assert_balanced(folder)


def test_a_second_ctrl_c_ends_at_once(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER, "broker.drain_s=60")
    launched = Launched(folder)
    launched.reach(2)
    os.kill(launched.pid_of("reward-0"), signal.SIGSTOP)
    os.kill(launched.pid_of("trainer-0"), signal.SIGSTOP)
    launched.interrupt()
    until(lambda: "again to end at once" in launched.text())
    launched.interrupt()
    assert launched.end(within_s=10) == 130, launched.text()
    assert left_over(folder) == []


def test_a_run_that_stands_still_stops_and_names_who_holds_it(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER, "run.watchdog_s=12", "reward.timeout_s=5", "broker.lease_s=60")
    launched = Launched(folder)
    launched.reach(2)
    frozen = launched.pid_of("reward-0")
    os.kill(frozen, signal.SIGSTOP)
    assert launched.end(within_s=40) == 70, launched.text()
    assert f"reward-0 (pid {frozen}) has not reported for" in launched.text()
    assert left_over(folder) == []


def test_a_role_that_is_misconfigured_stops_the_run_with_its_own_words(made: Callable[..., Path]) -> None:
    folder = made('reward.parts=[{name = "json:loads"}]')
    launched = Launched(folder)
    assert launched.end() == 2, launched.text()
    assert "[reward] parts: loads: TypeError: missing a required argument: 's'" in launched.text()
    assert '{"' not in launched.text(), "a person reads sentences"
    assert "Traceback" not in launched.text()
    assert left_over(folder) == []


def test_kill_9_of_the_launcher_leaves_no_orphan_and_the_run_can_be_resumed(made: Callable[..., Path]) -> None:
    folder = made("train.options={pace_s=0.05}", "run.steps=60")
    launched = Launched(folder)
    launched.reach(3)
    launched.process.kill()
    launched.process.wait()
    until(lambda: left_over(folder) == [], within_s=5)
    again = Launched(folder)
    assert again.end() == 0, again.text()
    assert report_of(folder)["steps"] == 60
    assert_balanced(folder)


def test_a_run_has_one_launcher(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER)
    launched = Launched(folder)
    launched.reach(1)
    second = Launched(folder)
    assert second.end() == 2
    assert f"is being run already, by process {launched.process.pid}" in second.text()
    launched.interrupt()
    assert launched.end() == 130


def test_an_unreachable_server_is_one_message_and_nothing_is_started(made: Callable[..., Path]) -> None:
    folder = made()
    launched = Launched(folder, TIDEMILL_BROKER_URL="redis://:secret@127.0.0.1:1/0")
    assert launched.end() == 2
    assert "does not answer within 5 s" in launched.text()
    assert "secret" not in launched.text()
    assert "Traceback" not in launched.text()
    assert left_over(folder) == []


def test_a_server_that_evicts_is_refused(made: Callable[..., Path], tmp_path: Path) -> None:
    import redis

    folder = made()
    with embedded_server.serving(tmp_path / "other") as url:
        redis.Redis.from_url(url).config_set("maxmemory-policy", "allkeys-lru")
        launched = Launched(folder, TIDEMILL_BROKER_URL=url)
        assert launched.end() == 2
    assert "maxmemory-policy is allkeys-lru" in launched.text()


def test_a_given_server_carries_the_run_and_outlives_it(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    with embedded_server.serving(tmp_path / "other") as url:
        launched = Launched(folder, TIDEMILL_BROKER_URL=url)
        assert launched.end() == 0, launched.text()
        assert embedded_server.pid(tmp_path / "other") is not None
    assert report_of(folder)["steps"] == 20
    assert left_over(folder) == []


def test_a_live_run_can_be_looked_at_from_outside_and_a_stopped_one_too(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER)
    launched = Launched(folder)
    launched.reach(3)
    live = ask(folder, "status", "--json")
    assert live["launcher_pid"] == launched.process.pid
    assert live["version"] >= 3
    assert {process["role"] for process in live["processes"].values()} == {"trainer", "rollout", "reward", "feeder"}
    assert {row["stream"] for row in ask(folder, "inspect", "open", "--json")} <= {"prompts", "rollouts", "scored"}
    versions = [row["version"] for row in ask(folder, "inspect", "ledger", "--json")]
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert any(row["live"] for row in ask(folder, "inspect", "weights", "--json"))
    assert ask(folder, "inspect", "dead", "--json") == []
    assert ask(folder, "inspect", "runs", "--json")[0]["state"] == "running"
    assert said(folder, "redis", "XLEN", "tm:{}:prompts").startswith("(integer) ")
    assert "trained" in said(folder, "redis", "HGETALL", "tm:{}:counts")
    assert f"{folder.name} has no slots: its processes stay where they are" in said(folder, "slots")
    refused = tidemill("slots", "move", "slot-0", "train", runs=folder.parent)
    assert (refused.returncode, "addition --slots 2` starts a run whose slots move" in refused.stderr) == (2, True)
    launched.interrupt()
    assert launched.end() == 130
    assert ask(folder, "status", "--json")["launcher_pid"] is None
    assert ask(folder, "report", "--json")["steps"] >= 3
    assert "tm:{" in said(folder, "redis", "KEYS", "*")
    assert left_over(folder) == []


def said(folder: Path, *arguments: str) -> str:
    """What a command prints."""
    answer = tidemill(*arguments, runs=folder.parent)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def ask(folder: Path, *arguments: str) -> Any:
    return json.loads(said(folder, *arguments))


def test_a_server_killed_again_and_again_leaves_no_place_taken(made: Callable[..., Path]) -> None:
    """Every stay in the run begins with empty hands: what a former one held is read again, not counted twice."""
    folder = made(*SLOWER, "rollout.max_rows=64")
    launched = Launched(folder)
    launched.reach(2)
    for _ in range(4):
        server = embedded_server.pid(folder / "redis")
        assert server is not None
        os.kill(server, signal.SIGKILL)
        until(lambda server=server: embedded_server.pid(folder / "redis") not in (None, server))
        launched.reach(launched.snapshot()["version"] + 3)
    launched.interrupt()
    assert launched.end() == 130, launched.text()
    assert_balanced(folder)
