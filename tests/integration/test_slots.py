"""Slots on real Celery workers: they obey their record, serve a real run, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker import embedded_server
from broker.fleet import Fleet, Served
from broker.redis_operator import RedisOperator
from broker.settings import URL_VARIABLE
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.test_launcher import QUICK, SLOWER, lay_model, left_over, until

UNANSWERED = 69
"""Exit code of a Celery command to which no worker has replied."""


class Host:
    """A server, a run on it, its light roles, and as many slot workers as a test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = embedded_server.address(folder / "redis")
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.roles: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, URL_VARIABLE: self.url}

    def begin(self) -> None:
        """The run's roles that need no slot, and the run's name in the fleet."""
        for package, role in (("producers", "feeder"), ("consumers", "reward")):
            argv = [sys.executable, "-m", package, role, "--run", str(self.folder), "--name", f"{role}-0"]
            self.roles.append(subprocess.Popen(argv, env=self.environment, stderr=subprocess.DEVNULL))
        self.on_the_fleet(
            lambda fleet: fleet.serve(Served(run=self.folder.name, folder=str(self.folder), url=self.url))
        )

    def ask_anew(self) -> None:
        """As `tidemill resume` does."""

        async def ask() -> None:
            operator = await RedisOperator.connect(self.url, self.folder.name)
            await operator.ask_anew()
            await operator.close()

        asyncio.run(ask())
        again = Served(run=self.folder.name, folder=str(self.folder), url=self.url, asked="again")
        self.on_the_fleet(lambda fleet: fleet.serve(again))

    def on_the_fleet(self, what: Callable[[Fleet], Any]) -> Any:
        async def ask() -> Any:
            fleet = await Fleet.connect(self.url)
            try:
                return await what(fleet)
            finally:
                await fleet.close()

        return asyncio.run(ask())

    def start(self, slot: str, pool: str, host: str = "here") -> subprocess.Popen[bytes]:
        """A Celery worker as an operator starts it."""
        name = slot if host == "here" else f"{slot}@{host}"
        argv = [sys.executable, "-m", "celery", "-A", "scheduler.slots", "worker", "-n", f"{slot}@{host}"]
        argv += ["-P", "prefork", "-c", "1", "-Q", "control", "--slot", slot, "--initial-pool", pool, "-l", "warning"]
        with (self.folder.parent / f"{name}.worker").open("ab") as said:
            self.workers[name] = subprocess.Popen(argv, env=self.environment, stdout=said, stderr=said)
        return self.workers[name]

    def said(self, slot: str) -> dict[str, Any]:
        return self.on_the_fleet(lambda fleet: fleet.said()).get(slot, {})

    def reach(self, slot: str, **facts: Any) -> dict[str, Any]:
        """Its report, once it says these facts."""

        def found() -> Any:
            said = self.said(slot)
            return said and facts.items() <= said.items() and said

        try:
            return until(found, 40)
        except AssertionError:
            raise AssertionError(f"{slot} never said {facts}; it says {self.said(slot)}") from None

    def order(self, slot: str, pool: str) -> None:
        async def move(fleet: Fleet) -> None:
            seen = (await fleet.wanted(slot)).epoch
            assert (await fleet.assign(slot, pool, seen=seen, reason="a test", by="test")).answer == "done"

        self.on_the_fleet(move)

    def celery(self, *arguments: str) -> Any:
        """What a stock Celery command answers. A slot may report before its worker listens to commands: nobody has
        heard one that is not answered. Named workers are waited for until they answer, all others for three seconds.
        """
        patience = "15" if "-d" in arguments else "3"

        def answered() -> subprocess.CompletedProcess[str] | None:
            done = subprocess.run(  # noqa: PLW1510 - the exit code is what is looked at
                [sys.executable, "-m", "celery", "-A", "scheduler.slots", *arguments, "--json", "--timeout", patience],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=90,
            )
            return None if done.returncode == UNANSWERED else done

        done = until(answered, 40)
        assert done.returncode == 0, done.stdout + done.stderr
        answers = json.loads(done.stdout)
        return answers if isinstance(answers, dict) else {node: one for each in answers for node, one in each.items()}

    def version(self) -> int:
        path = self.folder / "steps.jsonl"
        return len(path.read_text().splitlines()) if path.is_file() else 0

    def close(self) -> None:
        for process in [*self.workers.values(), *self.roles]:
            process.terminate()
        for process in [*self.workers.values(), *self.roles]:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        embedded_server.stop(self.folder / "redis")


@contextmanager
def hosted(tmp_path: Path, overrides: list[str]) -> Generator[Host]:
    """A run that nobody works for yet; at the end nothing of it is left."""
    folder = new_run_folder(load_run("addition", overrides), tmp_path / "runs", datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    embedded_server.ensure(folder / "redis")
    made = Host(folder)
    try:
        yield made
    finally:
        made.close()
    assert left_over(folder) == []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, [*QUICK, *SLOWER]) as made:
        yield made


def test_two_slots_carry_a_run_and_the_stock_celery_commands_steer_them(host: Host) -> None:
    host.begin()
    host.start("gpu0", "train")
    host.start("gpu1", "rollout")
    host.reach("gpu0", state="serving", pool="train")
    serving = host.reach("gpu1", state="serving", pool="rollout")
    until(lambda: host.version() >= 2, 40)
    found = host.celery("inspect", "slot_status")
    assert {answer["slot"]: answer["pool"] for answer in found.values()} == {"gpu0": "train", "gpu1": "rollout"}
    assert set(host.celery("inspect", "ping")) == {"gpu0@here", "gpu1@here"}
    unknown = host.celery("control", "-d", "gpu1@here", "assign_pool", "rolout", "7")
    assert "pools: rollout, train" in unknown["gpu1@here"]["refused"]
    old = host.celery("control", "-d", "gpu1@here", "assign_pool", "train", str(serving["epoch"]))
    assert f"epoch {serving['epoch']} is not newer" in old["gpu1@here"]["refused"]
    assert host.celery("control", "-d", "gpu1@here", "drain_slot")["gpu1@here"] == {"accepted": serving["epoch"] + 1}
    vacant = host.reach("gpu1", state="vacant", pool="", pid=0)
    assert vacant["work"]["rollout"]["items"] > 0
    host.celery("control", "-d", "gpu1@here", "assign_pool", "rollout", str(serving["epoch"] + 5))
    host.reach("gpu1", state="serving", pool="rollout", epoch=serving["epoch"] + 5)
    before = host.version()
    until(lambda: host.version() >= before + 2, 40)


def test_one_slot_carries_a_run_by_changing_roles(host: Host) -> None:
    host.begin()
    host.start("gpu0", "train")
    for _ in range(2):
        host.reach("gpu0", state="serving", pool="train")
        before = host.version()
        host.order("gpu0", "rollout")
        host.reach("gpu0", state="serving", pool="rollout")
        until(lambda: host.said("gpu0")["work"].get("rollout", {}).get("items", 0) > 0, 30)
        host.order("gpu0", "train")
        until(lambda before=before: host.version() > before, 40)


def test_a_killed_controller_comes_back_and_a_killed_worker_takes_its_controller_along(host: Host) -> None:
    host.begin()
    host.start("gpu0", "train")
    worker = host.start("gpu1", "rollout")
    first = host.reach("gpu1", state="serving")["pid"]
    os.kill(first, signal.SIGKILL)
    second = until(
        lambda: (said := host.said("gpu1"))["state"] == "serving" and said["pid"] != first and said["pid"], 40
    )
    assert host.said("gpu1")["moved"] == 1, "a new start after a death is no move, and says nothing of what one costs"
    worker.kill()
    worker.wait(10)
    until(lambda: not Path(f"/proc/{second}").exists(), 10)
    host.start("gpu1", "train")
    until(lambda: (said := host.said("gpu1"))["state"] == "serving" and said["pid"] != second, 40)
    assert host.said("gpu1")["pool"] == "rollout"
    before = host.version()
    until(lambda: host.version() >= before + 2, 40)


def test_a_slot_without_a_run_waits_for_one_and_says_so(host: Host) -> None:
    host.start("gpu0", "rollout")
    waiting = until(lambda: (said := host.said("gpu0")).get("detail") and said["for_s"] > 2 and said, 40)
    assert (waiting["state"], waiting["pool"]) == ("moving", "rollout")
    assert "no run to work for" in waiting["detail"]
    host.begin()
    host.start("gpu1", "train")
    served = host.reach("gpu0", state="serving", pool="rollout")
    assert served["move_s"] < served["ordered_s"] - waiting["for_s"], "waiting for a run was taken for a move"


def test_a_controller_that_dies_at_once_every_time_parks_its_slot_until_it_is_assigned_anew(host: Host) -> None:
    settings = json.loads((host.folder / "settings.json").read_text())
    settings["pools"] = {"rollout": {"command": "no_such_module"}}
    settings["scheduler"]["crash_limit"] = 2
    (host.folder / "settings.json").write_text(json.dumps(settings))
    host.begin()
    host.start("gpu0", "rollout")
    parked = host.reach("gpu0", state="parked", pool="rollout")
    assert "2 times in a row" in parked["detail"]
    assert "No module named no_such_module" in parked["detail"]
    host.order("gpu0", "train")
    host.reach("gpu0", state="serving", pool="train")


def test_a_slot_outlives_a_server_that_forgets_everything(host: Host) -> None:
    import redis

    host.begin()
    host.start("gpu0", "train")
    host.start("gpu1", "rollout")
    host.reach("gpu1", state="serving")
    host.order("gpu1", "train")
    host.order("gpu1", "rollout")
    known = host.reach("gpu1", state="serving", pool="rollout", epoch=3)
    until(lambda: host.version() >= 1, 40)
    with redis.Redis.from_url(host.url) as client:
        client.flushall()
    back = until(lambda: (wanted := host.on_the_fleet(lambda fleet: fleet.wanted("gpu1"))).epoch and wanted, 20)
    assert (back.pool, back.epoch) == ("rollout", known["epoch"])
    host.on_the_fleet(lambda fleet: fleet.serve(Served(run=host.folder.name, folder=str(host.folder), url=host.url)))
    before = host.version()
    until(lambda: host.version() >= before + 2, 40)


def test_slots_of_a_run_that_has_ended_wait_until_it_is_asked_for_anew(tmp_path: Path) -> None:
    with hosted(tmp_path, [*QUICK, "run.steps=3"]) as host:
        host.begin()
        host.start("gpu0", "train")
        host.start("gpu1", "rollout")
        for slot in ("gpu0", "gpu1"):
            until(
                lambda slot=slot: (said := host.said(slot)) and "has ended" in said["detail"] and said["for_s"] > 3, 60
            )
            assert host.said(slot)["pid"] == 0
        assert host.version() == 3
        host.start("gpu2", "train")  # one that has never heard of the run starts nothing for it either
        until(lambda: "has ended" in host.said("gpu2").get("detail", ""), 60)
        settings = json.loads((host.folder / "settings.json").read_text())
        settings["run"]["steps"] = 5
        (host.folder / "settings.json").write_text(json.dumps(settings))
        logs = host.folder / "logs"
        assert host.version() == 3 and (logs / "gpu0.err").exists() and not (logs / "gpu2.err").exists()
        host.workers["gpu2"].terminate()
        host.workers["gpu2"].wait(30)
        host.ask_anew()
        until(lambda: host.version() == 5, 60)


def test_a_supervisor_that_fails_ends_its_worker_and_leaves_no_controller(host: Host) -> None:
    host.begin()
    host.start("gpu1", "train")
    worker = host.start("gpu0", "rollout")
    controller = host.reach("gpu0", state="serving")["pid"]
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    host.on_the_fleet(lambda fleet: fleet.client.hset(fleet.prefix + "run", "nobody", "knows this"))
    assert worker.wait(30) == 70
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [controller, *children]), 20)
    assert "the supervisor failed" in (host.folder.parent / "gpu0.worker").read_text()
