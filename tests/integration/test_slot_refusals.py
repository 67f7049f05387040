"""What a slot's worker and its control commands refuse, with what they would accept; nothing moves, nobody is left."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from broker.errors import Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet
from deploy.run_check import saved_run
from deploy.slots_command import order
from tests.integration.test_launcher import QUICK, SLOWER, until
from tests.integration.test_slots import Host, hosted


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A run that nobody works for, and one empty slot."""
    with hosted(tmp_path_factory.mktemp("refusals"), [*QUICK, *SLOWER]) as made:
        made.begin()
        made.start("gpu0", "")
        made.reach("gpu0", state="vacant")
        yield made


def worker(host: Host, *options: str, node: str = "gpu9") -> tuple[int, str]:
    """Exit code and words of a worker that is to be refused."""
    argv = [sys.executable, "-m", "celery", "-A", "scheduler.slots", "worker", "-n", f"{node}@here", "-c", "1"]
    done = subprocess.run(
        [*argv, "-Q", "control", "-l", "error", *options],
        env=host.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--slot", "gpu/9"), '"gpu/9" cannot name a slot; nothing was started; use letters, digits'),
        (("--slot", "gpu9", "--cores", "0,4096"), "4096: no core of this machine; nothing was started; cores: 0"),
        (("--slot", "gpu9", "--initial-pool", "rolout"), '"rolout" is no pool of run addition-'),
        (("--slot", "gpu9", "--initial-pool", "rolout"), "nothing was started; pools: rollout, train"),
    ],
)
def test_a_worker_that_cannot_host_its_slot_ends_before_it_begins(
    host: Host, options: tuple[str, ...], told: str
) -> None:
    code, said = worker(host, *options)
    assert code == 2
    assert told in " ".join(said.split())
    assert "gpu9" not in host.on_the_fleet(lambda fleet: fleet.slots())


def test_a_worker_that_is_told_of_no_server_says_what_to_set(host: Host) -> None:
    host_of_none = Host(host.folder)
    host_of_none.url = ""
    code, said = worker(host_of_none, "--slot", "gpu9")
    assert code == 2
    assert "TIDEMILL_BROKER_URL is not set" in said and "tidemill slots env" in said


def test_a_slot_is_hosted_once(host: Host) -> None:
    code, said = worker(host, "--slot", "gpu0", node="other")
    assert code == 2
    assert "slot gpu0 is hosted by gpu0@here" in said
    assert host.said("gpu0")["node"] == "gpu0@here"
    assert host.workers["gpu0"].poll() is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rolout", "7"), '"rolout" is no pool, nothing was moved; pools: rollout, train'),
        (("train", "1"), "epoch 1 is not newer, nothing was moved; the slot obeys epoch 1, pool none"),
        (("train", "twelve"), "say assign_pool POOL EPOCH, a number"),
    ],
)
def test_an_order_that_cannot_be_obeyed_is_answered_with_what_can(
    host: Host, words: tuple[str, ...], told: str
) -> None:
    answer = host.celery("control", "-d", "gpu0@here", "assign_pool", *words)["gpu0@here"]
    assert told in answer["refused"]
    assert host.said("gpu0")["epoch"] == 1


def test_an_order_to_a_pool_that_is_full_is_refused_with_those_who_have_it(host: Host) -> None:
    host.on_the_fleet(lambda fleet: fleet.offer("gpu7", "train", 1))
    try:
        answer = host.celery("control", "-d", "gpu0@here", "assign_pool", "train", "7")["gpu0@here"]
    finally:
        host.on_the_fleet(lambda fleet: fleet.forget("gpu7"))
    assert "train may have 1 and has gpu7, nothing was moved; move one of them away first" in answer["refused"]
    assert host.said("gpu0")["epoch"] == 1


def test_a_worker_without_a_slot_says_how_to_give_it_one(host: Host) -> None:
    argv = [sys.executable, "-m", "celery", "-A", "scheduler.slots", "worker", "-n", "plain@here", "-c", "1"]
    with Path("/dev/null").open("w") as nowhere:
        host.workers["plain"] = subprocess.Popen(
            [*argv, "-Q", "control", "-l", "error"], env=host.environment, stdout=nowhere, stderr=nowhere
        )
    answer = until(lambda: host.celery("inspect", "slot_status").get("plain@here"))
    assert "start it with --slot NAME" in answer["error"]


def test_a_persons_order_rings_the_slots_bell(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the slot's next look at its record."""
    monkeypatch.setenv(FLEET_VARIABLE, FLEET)
    with redis.Redis.from_url(host.url) as client, client.pubsub() as listening:
        listening.psubscribe("*pidbox*")
        told = asyncio.run(order(host.url, host.folder, saved_run(host.folder), "gpu0", "", ""))
        assert "ordered to no pool" in told and "bell" not in told
        heard = until(lambda: (said := listening.get_message(timeout=1)) and said["type"] == "pmessage" and said, 20)
    message = json.loads(heard["data"])
    body = json.loads(base64.b64decode(message["body"]))
    assert (body["method"], body["destination"]) == ("assign_pool", ["gpu0@here"])
    assert body["arguments"] == {"pool": "", "epoch": host.reach("gpu0", state="vacant", epoch=2)["epoch"]}


async def test_a_person_cannot_give_a_pool_more_slots_than_it_may_have(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainers would end each other. An order to a slot that nobody hosts is taken, and says when it is obeyed."""
    monkeypatch.setenv(FLEET_VARIABLE, FLEET)
    settings = saved_run(host.folder)
    fleet = await Fleet.connect(host.url)
    await fleet.assign("gpu1", "", seen=0, reason="a test", by="test")
    await fleet.close()
    assert "is pinned to train" in await order(host.url, host.folder, settings, "gpu0", "train", "pin")
    with pytest.raises(Misconfigured, match=r"train may have 1 slot and has gpu0; nothing was moved"):
        await order(host.url, host.folder, settings, "gpu1", "train", "pin")
    with pytest.raises(Misconfigured, match=r'did you mean "rollout"\? pools: rollout, train'):
        await order(host.url, host.folder, settings, "gpu1", "rolout", "pin")
    with pytest.raises(Misconfigured, match=r'did you mean "gpu1"\? slots: gpu0, gpu1'):
        await order(host.url, host.folder, settings, "gpu11", "rollout", "pin")
    assert "it is silent now" in await order(host.url, host.folder, settings, "gpu1", "rollout", "pin")
