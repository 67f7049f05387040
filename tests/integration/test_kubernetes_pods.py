"""The Kubernetes files' pods as processes of this machine: each container's own command, variables and probe, as a
kubelet would start, ask and end it. Left out are images, volumes, accounts and the network: paths and the server's name
are replaced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from broker.embedded_server import find_server_file
from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.manifests import (
    FOLDER,
    Object,
    built,
    container,
    environment,
    first_containers,
    of_kind,
    pod,
    roles,
)
from tests.integration.slurm_cluster import free_ports
from tests.integration.test_launcher import QUICK, assert_balanced, lay_model, left_over, report_of, until

IMAGES = FOLDER.parent / "images" / "bin"
STEPS = 60
SECRET = "a-secret-of-a-test"


def names_of(workload: Object) -> list[str]:
    """Of its pods, as Kubernetes makes them."""
    name, spec = workload["metadata"]["name"], workload["spec"]
    if workload["kind"] == "StatefulSet":
        first = spec["ordinals"]["start"]
        return [f"{name}-{number}" for number in range(first, first + spec["replicas"])]
    return [f"{name}-5d8f7c9b6d-{letter}x2vq" for letter in "abc"[: spec.get("replicas", 1)]]


class Kubelet:
    """Pods by name; what they print is kept."""

    def __init__(self, objects: list[Object], folder: Path) -> None:
        self.objects, self.folder = objects, folder
        self.redis_port, dashboard_port = free_ports(2)
        self.instead = {
            "/etc/tidemill": str(folder / "secret"),
            "/etc/accounts": str(folder / "accounts"),
            "/opt/tidemill": str(FOLDER.parents[1]),
            "/data": str(folder / "data"),
            'save ""': f'save ""\nport {self.redis_port}',
            "tidemill@redis:6379": f"tidemill@127.0.0.1:{self.redis_port}",
            "0.0.0.0:9400": "127.0.0.1:0",
            "8300": str(dashboard_port),
        }
        self.dashboard = f"http://127.0.0.1:{dashboard_port}"
        self.pods: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str) -> str:
        for there, ours in self.instead.items():
            text = text.replace(there, ours)
        return text

    def told(self, workload: Object, name: str) -> dict[str, str]:
        """A pod's environment: the image's, then its own; a Secret's optional key is not there."""
        path = f"{IMAGES}:{self.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = {"PATH": path, "HOME": str(self.folder), "TIDEMILL_RUNS": str(self.folder / "runs")}
        quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TMPDIR": str(self.folder / "tmp" / name)}
        own = {one: self.here(value) for one, value in environment(self.objects, workload).items()}
        known = {one: name if "metadata.name" in value else value for one, value in own.items()}
        return {**image, **quiet, **{one: value for one, value in known.items() if "secretKeyRef" not in value}}

    def start(self, workload: Object, name: str) -> None:
        (self.folder / "tmp" / name).mkdir(parents=True, exist_ok=True)
        entry = [] if "command" in container(workload) else ["enter.sh"]
        words = entry + container(workload).get("command", []) + container(workload).get("args", [])
        env = self.told(workload, name)
        for first in first_containers(workload):
            subprocess.run(["env", *map(self.here, first["command"])], env=env, check=True, cwd=self.folder)
        with (self.folder / f"{name}.said").open("wb") as said:
            argv = [self.here(word) for word in words]
            self.pods[name] = subprocess.Popen(
                ["env", *argv], env=env, stdout=said, stderr=said, cwd=self.folder, start_new_session=True
            )

    def is_ready(self, workload: Object, name: str) -> bool:
        assert self.pods[name].poll() is None, self.said(name)
        probe = container(workload)["readinessProbe"]
        if "httpGet" in probe:
            return answers(self.dashboard + probe["httpGet"]["path"])
        argv = ["env", *probe["exec"]["command"]]
        done = subprocess.run(argv, env=self.told(workload, name), capture_output=True, check=False, cwd=self.folder)
        return done.returncode == 0

    def said(self, name: str) -> str:
        return f"{name}: {(self.folder / f'{name}.said').read_text()}"

    def end(self, *names: str) -> Mapping[str, int]:
        """Exit codes; a pod that outlives its grace is a failure."""
        for name in names:
            self.pods[name].send_signal(signal.SIGTERM)
        grace = max(pod(one)["terminationGracePeriodSeconds"] for one in roles(self.objects).values())
        return {name: self.pods.pop(name).wait(grace) for name in names}


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as said:
            return said.status == 200
    except OSError:
        return False


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    one = Kubelet(built(FOLDER / "cpu"), tmp_path)
    for folder in ("secret", "accounts", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secret" / "redis-password").write_text(SECRET)
    (tmp_path / "redis-server").symlink_to(find_server_file())
    try:
        yield one
    finally:
        for process in one.pods.values():
            process.kill()
            process.wait()
    assert left_over(tmp_path) == []


def test_the_server_knows_an_account_with_few_rights_but_no_password(kubelet: Kubelet) -> None:
    kubelet.start(of_kind(kubelet.objects, "StatefulSet")["redis"], "redis-0")
    server = ("127.0.0.1", kubelet.redis_port)
    with redis.Redis(*server, username="tidemill", password=SECRET) as client:
        until(lambda: pings(client), 15)
        said: Any = client.info()
        assert (said["maxmemory_policy"], said["maxmemory"], said["aof_enabled"]) == ("noeviction", 2**30, 1)
        with pytest.raises(NoPermissionError):
            client.flushall()
    with redis.Redis(*server) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    command = Path(f"/proc/{kubelet.pods['redis-0'].pid}/cmdline").read_text()
    assert "redis-server" in command and SECRET not in command
    assert SECRET not in (kubelet.folder / "accounts" / "accounts.acl").read_text() + kubelet.said("redis-0")
    assert kubelet.end("redis-0") == {"redis-0": 0}


def pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.nightly
def test_all_pods_become_ready_the_run_ends_well_and_nobody_outlives_its_grace(kubelet: Kubelet) -> None:
    overrides = [*QUICK, "scheduler.spare=false", f"run.steps={STEPS}", "train.options={pace_s=0.5}"]
    folder = new_run_folder(load_run("addition", overrides), kubelet.folder / "runs", datetime.now(UTC))
    lay_model(folder / "model")
    everyone = {name: one for one in roles(kubelet.objects).values() for name in names_of(one)}
    for name, workload in everyone.items():
        kubelet.start(workload, name)
    (early,) = [name for name in everyone if name.startswith("run-")]
    assert kubelet.pods.pop(early).wait(60) == 2, "its Job makes another one"
    assert "does not answer" in kubelet.said(early)
    kubelet.start(of_kind(kubelet.objects, "StatefulSet")["redis"], "redis-0")
    watcher = "run-later"
    kubelet.start(everyone.pop(early), watcher)
    waiting = dict(everyone)
    until(lambda: all(kubelet.is_ready(waiting[name], name) and waiting.pop(name) for name in list(waiting)), 100)
    assert kubelet.end("slot-2") == {"slot-2": 0}
    kubelet.start(everyone["slot-2"], "slot-2")
    assert kubelet.pods.pop(watcher).wait(240) == 0, kubelet.said(watcher)
    report = report_of(folder.resolve())
    assert (report["steps"], report["books"]["trained"]) == (STEPS, STEPS * 8)
    assert_balanced(folder.resolve())
    codes = kubelet.end(*(name for name in kubelet.pods if name != "redis-0"))
    assert set(codes.values()) <= {0, -signal.SIGTERM}, codes
    assert kubelet.end("redis-0") == {"redis-0": 0}
