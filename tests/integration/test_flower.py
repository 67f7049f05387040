"""Flower beside a slot, both started as in the local cluster: it shows the worker and the operators' tasks to whoever
has the password, and lets nobody change anything.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.lifeline import tied_to_this_process
from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
PASSWORD = "a-password-for-a-test"
SLOT = "slot-1"


class Flower:
    """The compose file's service, without its container."""

    def __init__(self, host: Host, environment: dict[str, str]) -> None:
        self.printed = host.folder.parent / "flower.printed"
        told = service()["environment"]
        given = {name: value for name, value in told.items() if name.startswith("FLOWER_")}
        given |= {"FLOWER_BASIC_AUTH": f"tidemill:{PASSWORD}", "FLOWER_PORT": "0", "FLOWER_ADDRESS": "127.0.0.1"}
        with self.printed.open("wb") as said:
            self.process = subprocess.Popen(
                ["celery", "-A", "scheduler.slots", "flower"],
                env={**environment, **given},
                cwd=host.folder.parent,
                stdout=said,
                stderr=said,
                preexec_fn=tied_to_this_process(),  # noqa: PLW1509 - one system call, nothing that locks
            )
        self.address = until(self.listening, 40)

    def listening(self) -> str:
        found = re.search(r"Visit me at (http://\S+)", self.printed.read_text())
        return found[1].rstrip("/") if found else ""

    def ask(self, path: str, password: str | None = PASSWORD, method: str = "GET") -> tuple[int, str]:
        """Status and body of an answer."""
        word = base64.b64encode(f"tidemill:{password}".encode()).decode()
        headers = {} if password is None else {"Authorization": f"Basic {word}"}
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(self.address + path, headers=headers, method=method, data=body)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def told(self, path: str) -> Any:
        status, body = self.ask(path)
        assert status == 200, (path, status, body)
        return json.loads(body)


def service() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["flower"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("flower"), [*QUICK, *SLOWER]) as made:
        made.begin()
        script = ROOT / "deploy" / "images" / "bin" / "slot.sh"
        env = {**with_our_programs(made), "TIDEMILL_PLACE": SLOT}
        with (made.folder.parent / "slot.printed").open("wb") as said:
            made.workers[SLOT] = subprocess.Popen(["sh", script], env=env, stdout=said, stderr=said)
        yield made


def with_our_programs(host: Host) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**host.environment, "PATH": path}


@pytest.fixture(scope="module")
def flower(host: Host) -> Iterator[Flower]:
    host.reach(SLOT, state="serving")
    made = Flower(host, with_our_programs(host))
    yield made
    made.process.terminate()
    made.process.wait(20)


def test_it_shows_the_worker_of_a_slot(flower: Flower) -> None:
    def found() -> Any:
        rows = flower.told("/workers?json=1")["data"]
        return next((row for row in rows if row["hostname"].startswith(f"{SLOT}@")), None)

    assert until(found, 30)["status"] is True
    name = found()["hostname"]
    assert name in flower.ask("/")[1]
    seen = until(lambda: flower.told("/api/workers?refresh=1").get(name), 30)
    assert [queue["name"] for queue in seen["active_queues"]] == ["control"]


def test_it_shows_an_operators_task_and_what_came_of_it(host: Host, flower: Flower) -> None:
    until(lambda: flower.told("/workers?json=1")["data"], 30)
    argv = ["celery", "-A", "scheduler.slots", "call", "tidemill.versions"]
    called = subprocess.run(argv, env=with_our_programs(host), capture_output=True, text=True, check=True, timeout=60)
    task = called.stdout.split()[-1]
    done = until(lambda: (seen := flower.told("/api/tasks").get(task)) and seen["state"] == "SUCCESS" and seen, 30)
    assert done["name"] == "tidemill.versions"
    assert "'version': 0" in done["result"]
    assert task in flower.ask(f"/task/{task}")[1]


def test_nobody_looks_without_the_password(flower: Flower) -> None:
    for path in ("/", "/api/workers", "/api/tasks", "/broker"):
        assert flower.ask(path, password=None)[0] == 401
        assert flower.ask(path, password="another")[0] == 401


@pytest.mark.parametrize(
    "order",
    [
        f"/api/worker/shutdown/{SLOT}@here",
        f"/api/worker/queue/cancel-consumer/{SLOT}@here?queue=control",
        "/api/task/async-apply/tidemill.prune_versions",
        "/api/task/apply/tidemill.export_version",
        "/api/task/revoke/any?terminate=true",
    ],
)
def test_nobody_changes_anything_with_it(flower: Flower, order: str) -> None:
    status, said = flower.ask(order, method="POST")
    assert (status, said) == (403, "Read only mode is enabled")


def test_what_is_tried_here_is_what_the_cluster_runs() -> None:
    script = service()["command"][-1]
    assert re.search(r"FLOWER_BASIC_AUTH=.*exec celery -A scheduler.slots flower\n$", script, re.DOTALL)
    assert f"flower=={version('flower')}" in (ROOT / "deploy" / "images" / "Dockerfile").read_text()
