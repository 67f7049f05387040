"""The shipped batch file, unchanged, on a real Slurm: a fleet over two nodes runs `addition`, is requeued, is ended.

The nodes are two daemons on this machine, and the GPUs files that are none; everything else is as on a cluster.
"""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.slurm_cluster import ROOT, Slurm, slurm_cluster
from tests.integration.test_launcher import QUICK, assert_balanced, lay_model, left_over, report_of, until

FILE = "deploy/slurm/tidemill.sbatch"
GROUPS = 8
STEPS = 10


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


class User:
    """Submits one job at a time, and sees what becomes of it."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.runs, self.output = slurm, folder / "runs", folder / "job.out"
        self.job = ""

    def submit(self, *options: str, run: tuple[str, ...] = ("addition",)) -> None:
        words = ["sbatch", "--parsable", f"--output={self.output}", "--time=30", *options, FILE, *run]
        self.job = self.slurm.type(*words, TIDEMILL_RUNS=str(self.runs)).strip()

    @property
    def place(self) -> Path:
        return self.runs / f".slurm-{self.job}"

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def sees(self, state: str) -> bool:
        now = self.slurm.facts(self.job)["JobState"]
        assert now in (state, "PENDING", "CONFIGURING", "RUNNING", "COMPLETING"), self.said()
        return now == state

    def awaits(self, state: str = "COMPLETED", within_s: float = 60) -> None:
        until(lambda: self.sees(state), within_s)

    def inside(self, command: str) -> str:
        """What a command says with the job's own environment."""
        return self.slurm.type("bash", "-c", f". {self.place}/environment && {command}")


@pytest.fixture
def user(slurm: Slurm, tmp_path: Path) -> Iterator[User]:
    yield User(slurm, tmp_path)
    slurm.clear()
    assert left_over(tmp_path) == []


def prepared(user: User, *overrides: str) -> Path:
    """A run with its model that waits to be gone on with, so that no job has to make one."""
    settings = load_run("addition", [*QUICK, "scheduler.spare=false", *overrides])
    folder = new_run_folder(settings, user.runs, datetime.now(UTC))
    lay_model(folder / "model")
    return folder.resolve()


def version(folder: Path) -> int:
    steps = folder / "steps.jsonl"
    return len(steps.read_text().splitlines()) if steps.exists() else 0


def commands() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


def section() -> list[str]:
    """Lines of the blocks of operations' section, without comments."""
    text = (ROOT / "docs" / "operations.md").read_text().split("\n## Slurm\n", 1)[1].split("\n## ", 1)[0]
    return [
        line.partition("  #")[0].strip() for block in text.split("```")[1::2] for line in block.strip().splitlines()
    ]


def test_a_job_runs_addition_over_two_nodes_to_its_end_and_leaves_nothing(user: User) -> None:
    folder = prepared(user, f"run.steps={STEPS}", "train.options={pace_s=0.3}")
    user.submit("--nodes=2", "--ntasks-per-node=1")
    until(lambda: version(folder) or user.sees("COMPLETED"), 60)
    secret = (user.place / "password").read_text()
    assert stat.S_IMODE((user.place / "password").stat().st_mode) == 0o600
    assert len(secret) == 48 and [line for line in commands() if secret in line] == []
    user.awaits()
    report = report_of(folder)
    assert (report["steps"], report["books"]["trained"]) == (STEPS, STEPS * GROUPS), user.said()
    assert_balanced(folder)
    assert "2 slots on one,two" in user.said() and secret not in user.said()
    assert not user.place.exists()


@pytest.mark.nightly
def test_a_job_that_is_requeued_goes_on_where_it_stopped_and_can_be_looked_into(user: User) -> None:
    """And every line of operations' section answers."""
    folder = prepared(user, "run.steps=100", "train.options={pace_s=0.3}")
    user.submit("--nodes=2", "--ntasks-per-node=1")
    until(lambda: version(folder) >= 5, 60)
    source, *looks = [line for line in section() if not line.startswith("sbatch")]
    assert source == f". runs/{user.place.name.replace(user.job, 'JOB')}/environment"
    answers = {look: user.inside(look) for look in looks}
    assert list(answers) == ["tidemill status", "tidemill slots", "celery -A scheduler.slots inspect ping"]
    assert folder.name in answers["tidemill status"]
    assert all("slot-1" in said and "slot-2" in said for said in list(answers.values())[1:])
    user.slurm.type("scontrol", "requeue", user.job)
    user.awaits("PENDING", 120)
    reached = version(folder)
    user.slurm.type("scontrol", "update", f"JobId={user.job}", "StartTime=now")
    user.awaits(within_s=180)
    assert f"job {user.job}, start 2" in user.said() and 5 <= reached < 100
    report = report_of(folder)
    assert (report["steps"], report["books"]["trained"]) == (100, 100 * GROUPS), user.said()
    assert_balanced(folder)
    assert [path.name for path in user.runs.glob("addition-*")] == [folder.name]


@pytest.mark.nightly
def test_a_job_whose_time_is_up_drains_and_is_requeued_by_itself(user: User) -> None:
    """Slurm's own signal, sent by hand: its shortest limit is a minute."""
    folder = prepared(user, "run.steps=100000", "train.options={pace_s=0.2}")
    user.submit("--nodes=1")
    until(lambda: version(folder) >= 3, 60)
    user.slurm.type("scancel", "--batch", "--signal=USR1", user.job)
    until(lambda: "requeued, to go on where it stopped" in user.said(), 120)
    user.awaits("PENDING", 30)
    assert user.slurm.facts(user.job)["Restarts"] == "1"
    assert (user.place / "password").exists()
    assert user.said().index("Warm shutdown") < user.said().index("ready to exit"), "slots first, then the server"


@pytest.mark.nightly
def test_each_slot_gets_its_part_of_its_nodes_gpus(user: User) -> None:
    if not user.slurm.has_gpus:
        pytest.skip("no device file may be made here, so Slurm has no GPUs to hand out")
    folder = prepared(user, "run.steps=100", "train.options={pace_s=0.3}")  # longer than the look below takes
    user.submit("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=4")
    until(lambda: version(folder) or user.sees("COMPLETED"), 60)
    slots: list[dict[str, Any]] = json.loads(user.inside("tidemill slots --json"))
    user.awaits(within_s=120)
    assert report_of(folder)["steps"] == 100
    assert {one["slot"]: one["devices"] for one in slots} == {"slot-1": "GPU 0,1", "slot-2": "GPU 2,3"}


def test_a_job_with_a_wrong_word_or_gpus_that_cannot_be_shared_out_starts_nothing(user: User) -> None:
    user.submit("--nodes=1", run=("addition", "train.grups=4"))
    user.awaits("FAILED")
    assert 'did you mean "groups"?' in user.said()
    if user.slurm.has_gpus:
        user.submit("--nodes=1", "--ntasks-per-node=3", "--gpus-per-node=2")
        user.awaits("FAILED")
        assert "2 GPUs cannot be shared out evenly among 3 tasks" in user.said()
    assert not list(user.runs.glob(".slurm-*"))


def test_slurm_takes_what_operations_types(slurm: Slurm) -> None:
    typed = [line for line in section() if line.startswith("sbatch")]
    assert len(typed) == 2
    for line in typed:
        if slurm.has_gpus or "gpus" not in line:
            program, *words = shlex.split(line)
            slurm.type(program, "--test-only", *words)
