"""Three hosts, one disk, a server with a password: whichever host is cut off, nothing is lost and it comes back.

A cable that is pulled and a network that swallows packets are different faults: the first is seen by the host, the
second by nobody, until a deadline passes.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.archive import closed_groups
from broker.errors import Unavailable
from broker.reports import SILENT_S
from tests.integration.hosts import Cluster, cluster
from tests.integration.namespaces import needs_namespaces
from tests.integration.test_launcher import QUICK, report_of

pytestmark = needs_namespaces

GROUPS = 8
PACED = [
    *QUICK,
    "prompts.eval.size=0",
    "rollout.group_size=4",
    "rollout.max_rows=16",  # four groups in hand at once
    "rollout.options={pace_s=0.2}",
    "train.options={pace_s=0.1}",
    "scheduler.slots=1",
    "scheduler.cores=shared",
    "scheduler.every_s=0.5",
    "scheduler.dwell_s=2",
    "scheduler.drain_s=5",
]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:
        yield lambda *overrides: stack.enter_context(cluster(tmp_path, [*PACED, *overrides]))


def trains(run: Cluster) -> str:
    """The slot that is heard and serves `train`; empty while there is none, or more than one."""
    found = [
        slot
        for slot, said in run.reports().items()
        if said["age_s"] < 3 and (said["state"], said["pool"]) == ("serving", "train")
    ]
    return found[0] if len(found) == 1 else ""


def done(run: Cluster, slot: str) -> int:
    """Groups a slot has finished."""
    return sum(work["items"] for work in run.reports()[slot]["work"].values())


def adopted(run: Cluster, *slots: str) -> set[str]:
    """Groups that these slots took from dead readers."""
    return {group for slot in slots for line in run.log(slot, "adopted from a dead reader") for group in line["groups"]}


def goes_on(run: Cluster, versions: int = 2) -> None:
    before = run.version()
    run.until(lambda: run.version() >= before + versions)


def until_dead(run: Cluster, slot: str) -> None:
    """The fleet knows that it is silent, and says so to a person."""
    run.until(lambda: run.reports()[slot]["age_s"] > SILENT_S, SILENT_S + 10)
    assert {row["slot"]: row["state"] for row in run.ask("a", "slots")}[slot] == "dead"


def ended_well(run: Cluster, code: int = 130) -> None:
    """Every version once, every group once, books that balance, and no word of the password anywhere."""
    if code:
        run.processes["launcher"].send_signal(signal.SIGINT)
    assert run.processes["launcher"].wait(120) == code, run.text("launcher")
    steps = report_of(run.folder)["steps"]
    assert report_of(run.folder)["books"]["trained"] == GROUPS * steps
    checks = run.ask("c", "audit")
    assert checks and all(check["holds"] for check in checks), checks
    assert trained(run) == dict.fromkeys(range(1, steps + 1), GROUPS)
    keeps_the_password(run)


def trained(run: Cluster) -> Counter[int]:
    """Version → groups that it trained. A group counts where it was closed last, so one that trained twice is missing
    from the first.
    """
    closed = sorted(closed_groups(run.folder / "groups"), key=lambda one: one.at)
    still_open = {row["group"] for row in run.ask("c", "inspect", "open")}
    versions = {one.group.id: one.version for one in closed if one.group.id not in still_open}
    return Counter(version for version in versions.values() if version is not None)


def keeps_the_password(run: Cluster) -> None:
    """Not in the run folder, nor in anything a process or a command has printed, nor in a list of processes."""
    secret = run.password.encode()
    said = [path for place in (run.folder, run.said) for path in place.rglob("*") if path.is_file()]
    assert len(said) > 20
    assert [path for path in said if secret in path.read_bytes()] == []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert secret not in (process / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
    assert run.password not in json.dumps(run.decisions())


@pytest.mark.timeout(600)
def test_a_rollout_host_that_is_cut_off_loses_nothing_and_comes_back(made: Callable[..., Cluster]) -> None:
    run = made("run.steps=28")
    run.launch()
    for slot, host in (("b0", "b"), ("c0", "c")):
        run.slot(slot, host, "rollout")
    for slot in ("b0", "c0"):
        run.reach(slot, state="serving", pool="rollout")
    keeps_the_password(run)
    run.until(lambda: run.version() and len(run.in_hand("b0")) >= 2)
    run.network.cut("b")
    held, worked = run.in_hand("b0"), done(run, "b0")
    until_dead(run, "b0")
    run.until(lambda: set(held) <= adopted(run, "c0", "slot-0"))
    goes_on(run)
    run.network.mend("b")
    run.reach("b0", state="serving", pool="rollout", within_s=20)
    run.until(lambda: done(run, "b0") > worked + len(held))
    refused = {line["group"] for line in run.log("b0", "another reader was first")}
    assert refused or run.log("b0", "entering the run again"), "what it held was not its own any more"
    assert refused <= set(held)
    ended_well(run, code=0)


@pytest.mark.nightly
@pytest.mark.timeout(960)
def test_a_network_that_swallows_packets_for_a_minute_holds_nobody_for_ever(made: Callable[..., Cluster]) -> None:
    run = made("run.steps=100000")
    run.launch()
    for slot, host in (("b0", "b"), ("b1", "b"), ("c0", "c")):
        run.slot(slot, host, "rollout")
    for slot in ("b0", "b1", "c0"):
        run.reach(slot, state="serving", pool="rollout")
    run.until(lambda: run.version() and len(run.in_hand("b0")) >= 2)
    run.network.silence("b")
    silent = time.monotonic()
    held, worked = [*run.in_hand("b0"), *run.in_hand("b1")], done(run, "b0")
    for words in (("slots",), ("inspect", "open"), ("redis", "PING")):
        started = time.monotonic()
        refused = run.type("b", *words)
        assert refused.returncode == Unavailable.exit_code, refused.stdout + refused.stderr
        assert "Traceback" not in refused.stderr
        assert time.monotonic() - started < 45  # five seconds of waiting, the rest is its own start
    until_dead(run, "b0")
    run.until(lambda: set(held) <= adopted(run, "c0", "slot-0"))
    run.processes["b1"].send_signal(signal.SIGTERM)
    run.processes["b1"].wait(60)  # it leaves although nobody hears it
    goes_on(run, versions=4)
    time.sleep(max(0.0, silent + 60 - time.monotonic()))
    run.network.mend("b")
    run.reach("b0", state="serving", pool="rollout", within_s=45)
    run.until(lambda: done(run, "b0") > worked + len(held), 45)
    run.until(lambda: "pong" in run.celery("a", "inspect", "ping", "-d", "b0@b"), 60)
    ended_well(run)


@pytest.mark.nightly
@pytest.mark.timeout(960)
@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_a_trainer_that_was_replaced_while_it_was_away_gives_way(made: Callable[..., Cluster], fault: str) -> None:
    run = made("run.steps=100000")
    starts_training_on_b(run)
    run.tidemill("a", "slots", "unpin", "c0")
    goes_on(run)
    getattr(run.network, fault)("b")
    until_dead(run, "b0")
    run.until(lambda: trains(run) == "c0")
    goes_on(run)
    successor = run.reports()["c0"]["pid"]
    time.sleep(5)  # longer than all its calls but those it makes when it comes back
    run.network.mend("b")
    run.until(lambda: run.reports()["b0"]["age_s"] < 3, 20)
    run.until(lambda: (run.reports()["b0"]["state"], run.reports()["b0"]["pool"]) == ("serving", "rollout"))
    goes_on(run)
    assert (trains(run), run.reports()["c0"]["pid"]) == ("c0", successor), "nobody threw it out"
    ended_well(run)


@pytest.mark.nightly
@pytest.mark.timeout(960)
def test_a_trainer_that_nobody_replaced_goes_on_with_the_version_it_had(made: Callable[..., Cluster]) -> None:
    run = made("run.steps=100000")
    starts_training_on_b(run)
    goes_on(run)
    trainer = run.reports()["b0"]["pid"]
    run.network.silence("b")
    until_dead(run, "b0")
    stood = run.version()
    time.sleep(20)
    assert run.version() <= stood + 1, "only it may train"
    run.network.mend("b")
    run.until(lambda: run.version() > stood + 2)
    assert (trains(run), run.reports()["b0"]["pid"]) == ("b0", trainer), "it was not even started again"
    ended_well(run)


@pytest.mark.nightly
@pytest.mark.timeout(960)
def test_when_the_leading_scheduler_is_cut_off_another_leads_and_it_comes_back_to_watch(
    made: Callable[..., Cluster],
) -> None:
    run = made("run.steps=100000")
    run.scheduler("b")
    run.until(lambda: "leading, epoch 1" in run.text("scheduler-b"))
    run.launch()
    for slot, host in (("b0", "b"), ("c0", "c")):
        run.slot(slot, host, "rollout")
    run.reach("c0", state="serving", pool="rollout")
    goes_on(run)
    run.network.silence("b")
    elsewhere = run.folder / "logs" / "scheduler-0.said"
    run.until(lambda: "leading, epoch 2" in elsewhere.read_text())
    goes_on(run)
    run.network.mend("b")
    run.until(lambda: "watching: " in run.text("scheduler-b"), 40)
    run.reach("b0", state="serving", within_s=20)
    goes_on(run)
    ended_well(run)


@pytest.mark.nightly
@pytest.mark.timeout(960)
def test_when_the_servers_host_is_cut_off_the_others_come_back_to_it(made: Callable[..., Cluster]) -> None:
    run = made("run.steps=100000")
    run.launch()
    for slot, host in (("b0", "b"), ("c0", "c")):
        run.slot(slot, host, "rollout")
    for slot in ("b0", "c0"):
        run.reach(slot, state="serving")
    run.network.cut("a")
    for slot in ("b0", "c0"):
        until_dead(run, slot)
    worked = {slot: done(run, slot) for slot in ("b0", "c0")}
    time.sleep(20)
    run.network.mend("a")
    for slot in ("b0", "c0"):
        run.reach(slot, within_s=20)
        run.until(lambda slot=slot: done(run, slot) > worked[slot])
    goes_on(run)
    ended_well(run)


def starts_training_on_b(run: Cluster) -> None:
    """The trainer on `b`: a person keeps the other slots to rollout."""
    run.launch()
    for slot, host in (("b0", "b"), ("c0", "c")):
        run.slot(slot, host, "rollout")
    for slot in ("slot-0", "b0", "c0"):
        run.reach(slot, state="serving")
    for slot in ("c0", "slot-0"):
        run.tidemill("a", "slots", "move", slot, "rollout")
    run.until(lambda: trains(run) == "b0")
    run.reach("slot-0", state="serving", pool="rollout")
