"""A trainer spread over ranks: real DeepSpeed processes that train together, die together and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import Broken, Misconfigured, Transient
from consumers.learners.rank_processes import LostRank, loss
from consumers.policies import tiny_llama
from deploy.cores import usable_here
from deploy.crew import core_shares
from deploy.records import records
from deploy.run_check import load_run
from tests.faults.audit import assert_went_well, said_by_trainers
from tests.faults.strikes import Observed
from tests.faults.worlds import EVERY_VERSION_STAYS, World, new_run
from tests.integration.test_launcher import left_over, report_of, until

SPREAD = World(
    learner="deepspeed",
    overrides=(
        EVERY_VERSION_STAYS,
        "train.ranks=2",
        "train.zero_stage=2",
        "model.warm_start=none",
        "rollout.engine=torch",
        'reward.parts=[{name = "length", options = {target = 4}}]',
        "run.stop_when=''",
        "run.steps=24",
        "train.groups=8",
        "prompts.eval.size=0",
        "broker.lease_s=2",
        "broker.drain_s=10",
    ),
    groups=8,
    steps=24,
    strike_at=4,
    within_s=150,
    learns=False,
)

pytestmark = pytest.mark.timeout(3 * SPREAD.within_s)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama.build(folder, dtype="float32", seed=0)
    return folder


@pytest.fixture
def launch(tiny: Path, tmp_path: Path) -> Callable[..., Observed]:
    """Launch a run on two ranks."""

    def launched(*overrides: str) -> Observed:
        folder = new_run(SPREAD, tmp_path / "runs", *overrides)
        shutil.copytree(tiny, folder / "model")
        return Observed(folder)

    return launched


@pytest.mark.parametrize(
    ("ends", "kind", "rank"),
    [
        ({1: "exit 75", 2: "kill -9 $$"}, LostRank, 2),
        ({1: "exit 0", 2: "exit 1"}, LostRank, 2),
        ({1: "exit 70", 2: "exit 75"}, Broken, 1),
        ({1: "exit 75", 2: "exit 2"}, Misconfigured, 2),
        ({1: "exit 75", 2: "exit 75"}, Transient, 1),
    ],
)
async def test_a_loss_is_named_after_the_rank_that_caused_it_and_its_kind_decides_what_follows(
    ends: dict[int, str], kind: type[Exception], rank: int, tmp_path: Path
) -> None:
    ranks = {number: await asyncio.create_subprocess_exec("sh", "-c", end) for number, end in ends.items()}
    await asyncio.gather(*(process.wait() for process in ranks.values()))
    error = loss(ranks, tmp_path)
    assert type(error) is kind
    assert f"rank {rank} (process {ranks[rank].pid})" in str(error)
    assert str(tmp_path / "logs" / f"rank-{rank}.err") in str(error)


def living(*pids: int) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_two_ranks_train_a_run_to_its_end_and_leave_nothing_behind(launch: Callable[..., Observed]) -> None:
    run = launch("train.zero_stage=3")
    run.finish(SPREAD.within_s)
    assert_went_well(run, SPREAD)
    rank = run.snapshot()["processes"]["rank-1"]
    assert rank["role"] == "rank" and rank["progress"] > 0
    assert report_of(run.folder)["busy_share"]["rank"] > 0
    assert f"trainer-0 {core_shares(load_run('addition', SPREAD.overrides), usable_here())['trainer-0']}" in run.text()
    steps = records(run.folder / "steps.jsonl")
    assert sum(step["grad_norm"] > 0 for step in steps) > SPREAD.steps / 2


@pytest.mark.parametrize(
    ("killed", "said", "checkpoint_every"),
    [
        ("rank-1", "was killed by SIGKILL; the trainer leaves with all its ranks", 3),
        ("trainer-0", "killed by signal 9", SPREAD.steps),
    ],
    ids=["rank 1, from a checkpoint", "rank 0, by replay"],
)
def test_a_killed_rank_takes_the_others_with_it_and_all_go_on_to_the_end(
    killed: str, said: str, checkpoint_every: int, launch: Callable[..., Observed]
) -> None:
    run = launch(f"train.checkpoint_every={checkpoint_every}")
    run.pass_version(SPREAD.strike_at, SPREAD.within_s)
    before = {name: run.pid_of(name) for name in ("rank-1", "trainer-0")}
    os.kill(before[killed], signal.SIGKILL)
    until(lambda: not living(*before.values()), within_s=10)
    run.finish(SPREAD.within_s)
    assert_went_well(run, SPREAD)
    assert checkpoint_every < SPREAD.strike_at or "replaying" in said_by_trainers(run.folder)
    assert run.text().count(said) == run.text().count("starting it again") == 1


def test_interrupted_ranks_drain_and_those_of_a_killed_launcher_die_with_it(launch: Callable[..., Observed]) -> None:
    run = launch("run.steps=100000")
    run.pass_version(2, SPREAD.within_s)
    run.interrupt()
    assert run.end() == 130, run.text()
    assert left_over(run.folder) == []
    assert "killed" not in run.text() and "exited with code" not in run.text()

    reached = report_of(run.folder)["steps"]
    run = run.again()
    run.pass_version(reached + 2, SPREAD.within_s)
    run.process.kill()
    run.process.wait()
    until(lambda: left_over(run.folder) == [], within_s=5)
