"""The shipped compose files on a real Docker engine: up, healthy, learning, scaled, struck, down, and up again.

One story in order, because a cluster takes its time to come up. Where no engine can be had it is skipped, and says why.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.compose.beside import beside, refused
from tests.compose.cluster import ROOT, Cluster
from tests.compose.engine import NoEngine, engine

pytestmark = pytest.mark.timeout(900)

RUN = """addition run.steps=100000 "run.stop_when=''" prompts.eval.size=64"""
"""As shipped, but without an end: the story decides how long it takes."""


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str]) -> Iterator[Cluster]:
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-", ignore_cleanup_errors=True))
        try:
            ours = stack.enter_context(engine(Path(folder), environment))
        except NoEngine as reason:
            pytest.skip(f"no Docker engine: {reason}")
        run = Cluster(ours, RUN, began)
        run.say("the engine and both base images are there")
        try:
            yield run
        finally:
            run.compose("down", "-v", "--timeout", "10", well=False)
            run.say("removed")


def test_the_image_is_built_by_the_one_installer_and_small(cluster: Cluster) -> None:
    cluster.compose("build")
    size = int(cluster.docker("image", "inspect", "-f", "{{.Size}}", "tidemill:cpu"))
    base = int(cluster.docker("image", "inspect", "-f", "{{.Size}}", "python:3.11-slim-bookworm"))
    cluster.say(f"the image is built: {(size - base) / 1e6:.0f} MB on a base of {base / 1e6:.0f} MB")
    assert size - base < 1.37e9, "with the real base, of 0.13 GB, it is larger than 1.5 GB"
    assert cluster.docker("image", "inspect", "-f", "{{.Config.User}}", "tidemill:cpu") == "tidemill"


def test_up_says_at_once_what_it_does_and_the_reward_rises(cluster: Cluster) -> None:
    asked = time.monotonic()
    cluster.compose("up", "-d")
    cluster.until(lambda: "starting" in cluster.compose("logs", "--no-color", "run"), 60, "the first status line")
    assert time.monotonic() - asked < 10 * patience(), "a newcomer wonders what happens"
    cluster.until(lambda: len(cluster.steps()) >= 5, 420, "five versions trained")
    early = mean_reward(cluster, slice(0, 5))
    cluster.until(lambda: mean_reward(cluster, slice(-5, None)) > early + 0.1, 300, f"reward rose from {early:.2f}")
    cluster.until(cluster.is_well, 120, "every service is healthy")


def test_nothing_outside_shows_the_password_and_nobody_is_root(cluster: Cluster) -> None:
    password = cluster.compose("exec", "-T", "redis", "cat", "/run/secrets/redis-password").strip()
    assert len(password) == 48
    names = cluster.docker("ps", "-q", "--filter", f"name={cluster.environment['COMPOSE_PROJECT_NAME']}").split()
    assert password not in cluster.docker("inspect", *names)
    assert password not in cluster.compose("logs", "--no-color")
    assert not any(password in cluster.docker("top", name, "-eo", "pid,args") for name in names)
    for service in ("slot", "redis"):
        assert cluster.compose("exec", "-T", service, "id", "-u").strip() != "0"


def test_redis_cli_looks_and_changes_nothing_and_no_account_can_do_everything(cluster: Cluster) -> None:
    def asked(words: str, user: str = "visitor") -> str:
        command = f"REDISCLI_AUTH=$(cat /run/secrets/redis-password) redis-cli --user {user} {words}"
        return cluster.compose("exec", "-T", "redis", "sh", "-c", command).strip()

    [key] = [line for line in asked("--scan --pattern 'tm:*:open'").splitlines() if "addition-" in line]
    assert int(asked(f"HLEN '{key}'")) > 0
    for user, words in (("visitor", f"DEL '{key}'"), ("tidemill", "FLUSHALL"), ("tidemill", "CONFIG SET dir /tmp")):
        assert "NOPERM" in asked(words, user), (user, words)
    assert asked("PING", "default").startswith("NOAUTH"), "whoever names nobody, or says the password alone"


def test_ports_are_open_on_loopback_only_and_the_dashboard_asks_for_its_token(cluster: Cluster) -> None:
    port = cluster.environment["DASHBOARD_PORT"]
    assert cluster.compose("port", "redis", "6379").startswith("127.0.0.1:")
    assert cluster.compose("port", "dashboard", port).strip() == f"127.0.0.1:{port}"
    address = f"http://127.0.0.1:{port}"
    assert address in cluster.compose("logs", "--no-color", "dashboard"), "it says where it is"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{address}/api/runs", timeout=20)
    token = {"Authorization": f"Bearer {cluster.environment['TIDEMILL_TOKEN']}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/api/runs", headers=token), timeout=20) as answer:
        assert "addition-" in answer.read().decode()


def test_prometheus_beside_it_finds_every_process_and_flower_every_slot(cluster: Cluster) -> None:
    password = cluster.compose("exec", "-T", "redis", "cat", "/run/secrets/redis-password").strip()
    try:
        with beside(cluster) as seen:
            roles = {"launcher", "scheduler", "feeder", "reward", "slot", "trainer", "rollout"}
            cluster.until(lambda: seen.roles() == roles, 60, "Prometheus hears every process")
            cluster.until(lambda: {"slot-1", "slot-2"} <= set(seen.workers()), 60, "Flower lists both slots")
            assert all(worker["status"] for worker in seen.workers().values())
            assert {refused(f"{seen.flower}{path}") for path in ("/", "/api/workers")} == {401}
            cluster.until(cluster.is_well, 120, "both are healthy, as everything else")
            flower = cluster.container("flower-1")
            for said in (("inspect", flower), ("logs", flower), ("top", flower, "-eo", "pid,args")):
                assert password not in cluster.docker(*said)
    except NoEngine as reason:
        pytest.skip(str(reason))


def test_a_slot_that_is_added_is_used(cluster: Cluster) -> None:
    cluster.compose("up", "-d", "--no-recreate", "--scale", "slot=3")
    cluster.until(lambda: cluster.serves("slot-3"), 180, "slot-3 serves and has finished groups")


def test_a_server_that_is_killed_comes_back_with_everything(cluster: Cluster) -> None:
    cluster.compose("kill", "-s", "KILL", "redis")
    cluster.say("redis killed")
    cluster.compose("start", "redis")
    cluster.goes_on()
    assert "NOPERM" not in cluster.compose("logs", "redis"), "it left out what its own log says"


def test_a_slot_that_is_cut_off_comes_back(cluster: Cluster) -> None:
    network = f"{cluster.environment['COMPOSE_PROJECT_NAME']}_default"
    cluster.docker("network", "disconnect", network, cluster.container("slot-2"))
    cluster.until(lambda: cluster.slots()["slot-2"]["state"] == "dead", 60, "slot-2 is cut off, and seen as dead")
    cluster.goes_on()
    cluster.docker("network", "connect", network, cluster.container("slot-2"))
    cluster.until(lambda: cluster.slots()["slot-2"]["state"] == "serving", 120, "slot-2 serves again")


def test_a_slot_that_stops_still_holds_nobody_for_ever(cluster: Cluster) -> None:
    cluster.docker("pause", cluster.container("slot-3"))
    cluster.until(lambda: cluster.slots()["slot-3"]["state"] == "dead", 60, "slot-3 is paused, and seen as dead")
    cluster.goes_on()
    cluster.docker("unpause", cluster.container("slot-3"))
    cluster.until(lambda: cluster.slots()["slot-3"]["state"] == "serving", 120, "slot-3 serves again")


def test_down_loses_nothing_and_up_goes_on(cluster: Cluster) -> None:
    before, run = cluster.version(), cluster.compose("exec", "-T", "scheduler", "readlink", "/runs/latest")
    cluster.compose("down")
    cluster.say(f"down at version {before}")
    cluster.compose("up", "-d")
    cluster.until(lambda: cluster.version() > before + 2, 240, f"trains past version {before}")
    assert cluster.compose("exec", "-T", "scheduler", "readlink", "/runs/latest") == run


def test_what_operations_says_one_can_ask_is_answered(cluster: Cluster) -> None:
    """The other lines of its block, which start and stop things, are the rest of this story."""
    block = (ROOT / "docs" / "operations.md").read_text().split("## A local cluster", 1)[1].split("```", 2)[1]
    lines = [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]
    assert all(line[:2] == ["docker", "compose"] for line in lines)
    asked = [line[2:] for line in lines if line[2] in ("exec", "logs", "ps")]
    assert len(asked) >= 5
    for verb, *words in asked:
        assert cluster.compose(verb, *(["-T"] if verb == "exec" else []), *words).strip(), words


def test_the_books_balance(cluster: Cluster) -> None:
    cluster.compose("stop", "feeder", "slot")
    cluster.say("feeder and slots have drained and ended")
    checks = cluster.ask("audit")
    assert checks and all(check["holds"] for check in checks), checks
    trained = [step["version"] for step in cluster.steps()]
    assert all(after == before + 1 for before, after in pairwise(trained)), "a version is missing, or there twice"
    cluster.say(f"the books balance after {trained[-1]} versions: " + "; ".join(map(in_words, checks)))


def in_words(check: dict[str, object]) -> str:
    return f"{check['what']} {check['counted']}"


def mean_reward(cluster: Cluster, which: slice) -> float:
    rewards = [step["reward"] for step in cluster.steps()][which]
    return sum(rewards) / len(rewards)


def patience() -> float:
    """How many times longer things take where others work too: processes that run or want to, per core."""
    load = float(Path("/proc/loadavg").read_text().split()[0])
    cores = int(subprocess.run(["nproc"], capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    return max(1.0, load / cores)
