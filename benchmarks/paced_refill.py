"""One paced run under dynamic sampling, on real processes: batches refilled by admission, or in waves.

For: `dynamic_sampling`. Not for: comparing. The same processes in both: trainer, producers and reward as they are
shipped, at stated paces; only the feeder differs. The engine answers right so often that the wanted share of groups
has a signal; which ones have is drawn by each group's seed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from broker import embedded_server
from broker.lifeline import tied_to_this_process
from broker.redis_broker import RedisBroker
from deploy.cores import LIGHT
from deploy.crew import TRAINER, role_command
from deploy.records import steps_of
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from deploy.snapshot import books_of
from scheduler.controller_process import thread_environment

HERE = Path(__file__).parent
PRODUCERS, SIBLINGS = 4, 4
LENGTH, TOKEN_S = (10, 40), 0.0008
"""Tokens of a rollout, drawn evenly, and seconds of each of a group's tokens."""
GROUP_S = SIBLINGS * sum(LENGTH) / 2 * TOKEN_S
"""What a group takes a producer on average."""
GROUPS, STEP_S = 8, 0.8
"""B, and seconds of a step."""
LIMIT_S = 120.0
"""For one run; one that overruns it fails."""
LEAVE_S = 20.0
REFILLS = ("admission", "waves")
WAVES = "from benchmarks.wave_feeder import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refilled:
    """What one run came to, from its first version to its last."""

    steps: Sequence[dict[str, Any]]
    survived: int
    """Groups with a signal, those that the end of the run left untrained too."""
    retired: int
    """Groups without one."""

    @property
    def figures(self) -> dict[str, float]:
        trained, seconds = self.steps[1:], self.steps[-1]["at"] - self.steps[0]["at"]
        surviving = self.survived / (self.survived + self.retired)
        found = {
            "trainer_waits_share": sum(step["wait_s"] for step in trained) / seconds,
            "groups_per_s": sum(step["groups"] for step in trained) / seconds,
            "sampled_per_trained": 1 / surviving,
            "surviving_share": surviving,
            "fleet_waits_share": max(0.0, 1 - surviving * PRODUCERS / GROUP_S * STEP_S / GROUPS),
            "staleness_mean": sum(step["staleness"]["mean"] for step in trained) / len(trained),
        }
        return {name: round(value, 4) for name, value in found.items()}


def accuracy_of(surviving: float) -> float:
    """Share p ≤ ½ of right answers with which so many groups are neither all right nor all wrong: 1 − p^G − (1−p)^G.

    >>> round(accuracy_of(0.5), 3)
    0.159
    """
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - middle**SIBLINGS - (1 - middle) ** SIBLINGS < surviving else (low, middle)
    return low


def overrides(surviving: float, staleness: int, versions: int, seed: int) -> list[str]:
    """Of the shipped run `paced`. A producer has one group in hand, so that a wave spreads evenly."""
    return [
        f"run.seed={seed}",
        f"run.steps={versions}",
        f"rollout.group_size={SIBLINGS}",
        f"rollout.max_rows={SIBLINGS}",
        f"rollout.options={{accuracy={accuracy_of(surviving):.6f}, length={list(LENGTH)}, token_pace_s={TOKEN_S}}}",
        'reward.parts=[{name="exact_match"}]',
        "algorithm.dynamic_sampling=true",
        f"train.groups={GROUPS}",
        f"train.staleness={staleness}",
        f"train.options={{pace_s={STEP_S}}}",
        "train.checkpoint_every=1000",
    ]


def measured(root: Path, refill: str, surviving: float, staleness: int, *, versions: int, seed: int) -> Refilled:
    """From begin to end. Raises RuntimeError when the run fails or overruns its limit."""
    settings = load_run("paced", overrides(surviving, staleness, versions, seed))
    folder = new_run_folder(settings, root, datetime.now().astimezone()).resolve()
    make_model(folder)
    (folder / "logs").mkdir(exist_ok=True)
    with embedded_server.serving(folder / "redis") as url, running(folder, url, refill) as trainer:
        try:
            code = trainer.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            said = (folder / "logs" / f"{TRAINER}.err").read_text()
            raise RuntimeError(f"{refill}, {surviving:g} surviving: the trainer ended with {code}; it said:\n{said}")
        survived, retired = asyncio.run(scored(url, folder.name))
        return Refilled(steps=list(steps_of(folder).values()), survived=survived, retired=retired)


def make_model(folder: Path) -> None:
    """In a process of its own, so that this one loads no model library; from the second run on it is at hand."""
    argv = [sys.executable, "-m", "deploy.initial_model", "--run", str(folder)]
    subprocess.run(argv, env={**os.environ, **thread_environment(1)}, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def running(folder: Path, url: str, refill: str) -> Generator[subprocess.Popen[bytes]]:
    """All processes of the run; its trainer's. They leave when the run is over and are ended when they do not."""
    names = [TRAINER, *(f"rollout-{number}" for number in range(PRODUCERS)), "reward-0", "feeder-0"]
    processes = [started(name, folder, url, refill) for name in names]
    try:
        yield processes[0]
    finally:
        deadline = time.monotonic() + LEAVE_S
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def started(name: str, folder: Path, url: str, refill: str) -> subprocess.Popen[bytes]:
    command = role_command(name, folder, LIGHT, url)
    argv = list(command.argv)
    if refill == "waves" and name.startswith("feeder"):
        argv = [sys.executable, "-c", WAVES, *argv[argv.index("feeder") :]]
    with command.output.open("ab") as said:
        return subprocess.Popen(
            argv,
            cwd=HERE.parent,  # where the feeder of waves is found
            env={**os.environ, **command.env},
            stdout=said,
            stderr=said,
            preexec_fn=tied_to_this_process(),  # noqa: PLW1509  no thread here
        )


async def scored(url: str, run: str) -> tuple[int, int]:
    """Groups with and without a signal so far."""
    broker = await RedisBroker.connect(url, run)
    try:
        books = books_of((await broker.books()).counts, "train")
        return books["trained"] + (await broker.backlog())["scored"], books["retired"]
    finally:
        await broker.close()
