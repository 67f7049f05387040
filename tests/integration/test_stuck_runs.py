"""`tidemill status` on real runs in trouble: it names entry, role and reason, and is silent once all is well.

Processes are killed and frozen, and the server is filled, under a run that trains.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from broker import embedded_server
from broker.reports import TOO_MANY_DEAD
from broker.streams import Keys
from deploy.run_check import saved_run
from deploy.status import as_json, current_snapshot
from tests.command_line import among, tidemill
from tests.integration.test_launcher import SLOWER, Launched, ask, left_over, made, until

__all__ = ["made"]


def status(folder: Path) -> dict[str, Any]:
    """What `tidemill status --json` prints."""
    return as_json(folder, current_snapshot(folder, saved_run(folder)))


def stuck(folder: Path, name: str, within_s: float = 30) -> dict[str, Any]:
    """The finding of that name, once it is found."""
    return until(lambda: next((one for one in status(folder)["stuck"] if one["name"] == name), None), within_s)


def is_well(folder: Path) -> bool:
    return not any(finding["holds"] for finding in status(folder)["stuck"])


def trained_since(launched: Launched, version: int) -> bool:
    return launched.snapshot()["version"] > version


def test_a_scorer_that_hangs_is_named_with_the_entry_it_holds(made: Callable[..., Path]) -> None:
    folder = made('reward.parts=[{name = "tests.integration.unruly_rules:sleeps"}]', "reward.timeout_s=300")
    launched = Launched(folder)
    try:
        found = stuck(folder, "entry-stuck")
        scorer, rollouts = status(folder)["processes"]["reward-0"], status(folder)["streams"]["rollouts"]
        held = rollouts["idlest"]
        assert found["what"].startswith(f"reward-0 (pid {scorer['pid']}) brings group {held['group']} no further")
        assert f"entry {held['entry_id']} of `rollouts`" in found["what"]
        assert "says 'scoring' and has finished nothing" in found["why"]
        assert f"kill -USR1 {scorer['pid']}" in found["mend"]
        assert found["since_s"] > 4, "its lease is 2 s"
        assert ask(folder, "status", "--json")["stuck"][0]["name"] == "entry-stuck"
        shown = tidemill("status", runs=folder.parent, COLUMNS="110").stdout
        assert "STUCK" in shown and f"brings group {held['group']}" in shown
    finally:
        launched.interrupt()
        launched.end(within_s=60)
    assert left_over(folder) == []


def test_producers_that_are_gone_and_a_full_server_are_named_until_they_are_mended(made: Callable[..., Path]) -> None:
    folder = made(*SLOWER)
    launched = Launched(folder)
    launched.reach(2)
    try:
        names_gone_producers(folder, launched)
        names_a_full_server(folder, launched)
    finally:
        launched.process.send_signal(signal.SIGCONT)
        launched.interrupt()
        launched.end(within_s=60)
    assert left_over(folder) == []


def names_gone_producers(folder: Path, launched: Launched) -> None:
    producer = launched.pid_of("rollout-0")
    launched.process.send_signal(signal.SIGSTOP)  # nobody starts it again
    os.kill(producer, signal.SIGKILL)
    found = stuck(folder, "no-reader")
    assert "wait in `prompts`" in found["what"] and "nobody takes them" in found["what"]
    assert f"rollout-0 (pid {producer}) has not reported for" in found["why"]
    assert [one["name"] for one in status(folder)["stuck"]].count("process-silent") == 0, "it is named once"
    before = launched.snapshot()["version"]
    launched.process.send_signal(signal.SIGCONT)
    until(lambda: trained_since(launched, before) and is_well(folder))


def names_a_full_server(folder: Path, launched: Launched) -> None:
    with redis.Redis.from_url(embedded_server.address(folder / "redis")) as server:
        limit = str(server.config_get("maxmemory")["maxmemory"])  # type: ignore[index]
        server.config_set("maxmemory", 1)
        found = stuck(folder, "server-full")
        assert found["what"].startswith("the server refuses new work for want of memory")
        assert "raise its maxmemory" in found["mend"]
        assert found["holds"]
        before = launched.snapshot()["version"]
        server.config_set("maxmemory", limit)
        until(lambda: trained_since(launched, before) and is_well(folder))
        assert server.xlen(Keys(folder.name).stream("dead")) == 0


def test_a_run_that_buries_much_stops_admitting_says_why_and_goes_on_when_told(made: Callable[..., Path]) -> None:
    rule = 'reward.parts=[{name = "tests.integration.unruly_rules:breaks_for_odd_prompts"}]'
    folder = made(rule, "broker.max_attempts=1", "broker.dead_limit=3", *SLOWER, "prompts.eval.size=0")
    launched = Launched(folder)
    try:
        found = stuck(folder, "admission-stopped")
        assert found["holds"] and "with 3 nothing new is admitted" in found["what"]
        until(lambda: status(folder)["processes"]["feeder-0"]["stage"] == TOO_MANY_DEAD)
        stopped = status(folder)
        done = until(lambda: (now := status(folder))["backlog"]["prompts"] + now["backlog"]["rollouts"] == 0 and now)
        assert done["counts"]["train.admitted"] == stopped["counts"]["train.admitted"]
        assert 3 <= done["dead"] < 3 + done["cap"], "what was open then was worked on, and nothing else"
        dropped = tidemill("inspect", "dead", "drop", "--all", "--run", folder.name, runs=folder.parent)
        assert dropped.returncode == 0, dropped.stdout + dropped.stderr
        until(lambda: status(folder)["counts"]["train.admitted"] > done["counts"]["train.admitted"])
    finally:
        launched.interrupt()
        launched.end(within_s=60)
    assert left_over(folder) == []


LOOKING: dict[str, list[str]] = {
    "tidemill status": [r"step \d+/100000", r"nothing is stuck"],
    "tidemill status --json": [r'"stuck": \[\]', r'"lease_left_s"|"decision": null'],
    "tidemill top": [r"training +step \d+/100000"],
    "tidemill doctor": [r"ok +python: 3\.", r"ok +import names: .* are ours"],
}
"""Line of operations' section on looking → patterns of its answer."""


def looking_block() -> list[str]:
    operations = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    block = operations.split("## Looking at a run", 1)[1].split("```", 2)[1]
    return [command for line in block.splitlines() if (command := line.partition("#")[0].strip())]


def test_every_line_on_looking_answers_as_the_operators_guide_says(made: Callable[..., Path]) -> None:
    assert looking_block() == list(LOOKING)
    folder = made(*SLOWER)
    launched = Launched(folder)
    try:
        launched.reach(2)
        for line, patterns in LOOKING.items():
            said = typed(line, folder)
            for pattern in patterns:
                assert re.search(pattern, said), f"{line} answered\n{said}"
    finally:
        launched.interrupt()
        launched.end(within_s=60)


def typed(line: str, folder: Path) -> str:
    """What a shell answers; what goes on until the run ends is interrupted."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = among(folder.parent, PATH=path, COLUMNS="100")
    answer = subprocess.run(
        ["timeout", "-s", "INT", "15", "bash", "-c", f"exec {line}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode in ((0, 124) if line == "tidemill top" else (0,)), answer.stdout + answer.stderr
    return answer.stdout
