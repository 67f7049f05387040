"""Ends that come again and again: a server that is away is waited for, a fault that never passes is given up."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker import embedded_server
from broker.errors import Misconfigured, Unavailable
from broker.redis_broker import RedisBroker
from broker.settings import URL_VARIABLE
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from scheduler.controller_process import Command, ControllerProcess, thread_environment
from scheduler.respawn import Decision, Limits, Respawn, StopRun


def watched(process: ControllerProcess, reached: Callable[[], object], within_s: float = 60.0) -> list[Decision]:
    """Tick as its keeper does until it is so; what was decided meanwhile."""
    decisions: list[Decision] = []
    deadline = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < deadline, [decisions, process.last_words()]
        decision = process.tick(time.monotonic())
        decisions += [decision] if decision else []
        time.sleep(0.02)
    return decisions


@pytest.mark.timeout(120)
def test_a_role_outlives_any_number_of_starts_without_a_server(tmp_path: Path) -> None:
    folder = new_run_folder(load_run("addition", []), tmp_path / "runs", datetime.now(UTC)).resolve()
    url = embedded_server.address(tmp_path / "server")
    argv = (sys.executable, "-m", "consumers", "reward", "--run", str(folder), "--name", "reward-0")
    environment = {**thread_environment(1), URL_VARIABLE: url}
    role = ControllerProcess(
        Command(name="reward-0", argv=argv, env=environment, output=tmp_path / "reward.err"), Limits(crashes=2)
    )
    role.start(time.monotonic())
    try:
        decisions = watched(role, lambda: len(role.exits) == 4)
        assert {life.code for life in role.exits} == {Unavailable.exit_code}
        assert all(isinstance(one, Respawn) and "server does not answer" in one.reason for one in decisions)
        with embedded_server.serving(tmp_path / "server"):
            watched(role, lambda: "reward-0" in asyncio.run(heartbeats(url, folder.name)))
            role.fence()
            watched(role, lambda: role.is_over)
    finally:
        role.fence()
        watched(role, lambda: role.is_over)


async def test_a_refused_password_is_no_absence_and_is_not_waited_for(tmp_path: Path) -> None:
    with embedded_server.serving(tmp_path / "server") as url:
        broker = await RedisBroker.connect(url, "run")
        await broker.client.config_set("requirepass", "sesame")
        for refused in (url, f"{url}?password=parsley"):
            with pytest.raises(Misconfigured, match="refuses who we say we are") as said:
                await RedisBroker.connect(refused, "run")
            assert "parsley" not in str(said.value)
        await (await RedisBroker.connect(f"{url}?password=sesame", "run")).close()
        await broker.client.config_set("requirepass", "")
        await broker.close()


async def heartbeats(url: str, run: str) -> set[str]:
    broker = await RedisBroker.connect(url, run)
    try:
        return set(await broker.beats())
    finally:
        await broker.close()


@pytest.mark.timeout(60)
def test_a_fault_that_is_called_passing_and_never_passes_is_given_up(tmp_path: Path) -> None:
    failing = (sys.executable, "-c", "import sys; print('the shared folder is not there', flush=True); sys.exit(75)")
    role = ControllerProcess(Command(name="r", argv=failing, output=tmp_path / "r.err"), Limits(crashes=3))
    began = time.monotonic()
    role.start(began)
    *again, last = watched(role, lambda: role.is_over)
    assert [type(one) for one in again] == [Respawn, Respawn]
    assert isinstance(last, StopRun)
    assert "code 75 (a passing fault), 3 times in a row" in last.reason
    assert "the shared folder is not there" in role.last_words()
    assert time.monotonic() - began >= 1 + 4
