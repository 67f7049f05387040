"""A run whose processes are started by others: begun, watched and closed by one command, joined by the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE
from deploy.health import main as health
from deploy.run_folder import runs_root
from tests.command_line import command_line, tidemill
from tests.integration.test_launcher import QUICK, left_over, report_of, until
from tests.integration.test_slots import Host, hosted

STEPS = 40


class Operator:
    """Starts the parts of a run one by one, as a cluster's manager would."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.env = {**host.environment, FLEET_VARIABLE: FLEET, "TIDEMILL_RUNS": str(host.folder.parent)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A command in a terminal of its own; what it prints is kept."""
        with self.said_by(words[1]).open("ab") as said:
            argv = command_line(*words)
            self.host.roles.append(subprocess.Popen(argv, env=self.env, stdout=said, stderr=said))
        return self.host.roles[-1]

    def said_by(self, name: str) -> Path:
        return self.host.folder.parent / f"{name}.said"

    def says(self, name: str, sentence: str) -> None:
        until(lambda: sentence in self.said_by(name).read_text(), 40)

    def watch(self) -> subprocess.Popen[bytes]:
        return self.start("run", "addition", "--elsewhere", "--go-on")

    def ask(self, *words: str) -> Any:
        argv = command_line(*words, "--json")
        return json.loads(subprocess.run(argv, env=self.env, capture_output=True, text=True, check=True).stdout)

    def health(self, role: str, place: str = "") -> tuple[int, str]:
        argv = [sys.executable, "-m", "deploy.health", role]
        env = {**self.env, "TIDEMILL_PLACE": place or role, "TMPDIR": str(self.host.folder.parent)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with hosted(tmp_path, [*QUICK, f"run.steps={STEPS}", "train.options={pace_s=0.2}"]) as host:
        yield Operator(host)


def test_roles_wait_for_a_run_and_its_watcher_may_leave_and_come_back_and_closes_its_books(operator: Operator) -> None:
    folder = operator.host.folder
    for role in ("feeder", "reward"):
        operator.start("join", role)
    operator.says("feeder", "waiting: the fleet has no run to work for")
    assert operator.health("feeder") == (0, "feeder is well\n"), "waiting for a run is no fault"
    assert operator.health("slot", "gpu0")[0] == 1, "a slot nobody has started is"
    watcher = operator.watch()
    operator.says("reward", f"working for run {folder.name}")
    operator.host.start("gpu0", "train")
    operator.host.start("gpu1", "rollout")
    until(lambda: operator.host.version() >= 1, 60)
    assert operator.health("run") == (0, "run is well\n")
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(60) == 130
    operator.says("addition", "no longer watched; the run goes on")
    for role, place in (("slot", "gpu0"), ("feeder", f"feeder-{os.uname().nodename}")):
        assert operator.health(role, place) == (0, f"{place} is well\n")
    again = operator.watch()
    assert again.wait(120) == 0, operator.said_by("addition").read_text()
    report = report_of(folder)
    assert (report["steps"], report["books"]["trained"]) == (STEPS, STEPS * 8)
    assert all(check["holds"] for check in operator.ask("audit"))
    assert [path.name for path in runs_of(folder)] == [folder.name], "it went on with the run that was there"


def test_a_watcher_of_processes_elsewhere_needs_a_server_that_they_reach(tmp_path: Path) -> None:
    done = tidemill("run", "addition", "--elsewhere", runs=tmp_path / "runs")
    assert done.returncode == Misconfigured.exit_code
    assert "name a server that all of them reach in TIDEMILL_BROKER_URL" in done.stderr
    assert left_over(tmp_path) == []


def test_health_says_that_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER_URL", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert health("slot") == 1
    assert "cannot be asked: ConnectionError" in capsys.readouterr().out


def runs_of(folder: Path) -> list[Path]:
    assert runs_root() != folder.parent
    return [path for path in folder.parent.iterdir() if (path / "settings.json").is_file() and not path.is_symlink()]
