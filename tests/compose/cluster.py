"""The shipped cluster, brought up unchanged on a real engine, and what a person would ask of it.

For: `test_cluster`. Not for: the engine (`engine`). Each cluster is a project of its own with ports of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 2.0
"""Deadlines are written for two cores of one's own, and so much longer on any."""
SERVICES = ("redis", "run", "scheduler", "feeder", "reward", "slot", "dashboard")


def free_port() -> int:
    """The dashboard is told its port, for the address that it says; so the engine cannot choose one."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """`docker compose`, as typed in the checkout."""

    def __init__(self, engine: Mapping[str, str], run: str, began: float) -> None:
        """`began`: the zero of the story, by the monotonic clock."""
        own = {
            "COMPOSE_PROJECT_NAME": f"tidemill-test-{os.getpid()}",
            "RUN": run,
            "TIDEMILL_TOKEN": "a-token-for-a-test",
        }
        self.environment = {**engine, **own, "REDIS_PORT": "0", "DASHBOARD_PORT": str(free_port())}
        self.began = began

    def say(self, sentence: str) -> None:
        """A line of the test's own story."""
        print(f"[{time.monotonic() - self.began:5.0f} s] {sentence}", flush=True)  # noqa: T201 - how long what took is part of the answer

    def compose(self, *words: str, within_s: float = 900, well: bool = True) -> str:
        """What it prints; it must succeed unless `well` is False."""
        done = subprocess.run(
            ["docker", "compose", *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 or not well, f"docker compose {' '.join(words)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def docker(self, *words: str) -> str:
        done = subprocess.run(["docker", *words], env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def container(self, place: str) -> str:
        """`slot-2` by the engine's name."""
        return f"{self.environment['COMPOSE_PROJECT_NAME']}-{place}"

    def tidemill(self, *words: str) -> str:
        return self.compose("exec", "-T", "scheduler", "tidemill", *words)

    def ask(self, *words: str) -> Any:
        return json.loads(self.tidemill(*words, "--json"))

    def until(self, condition: Callable[[], Any], within_s: float, what: str) -> Any:
        """Wait for a state; one that does not come is told with what the services say instead."""
        by = time.monotonic() + PATIENCE * within_s
        while time.monotonic() < by:
            if found := condition():
                self.say(what)
                return found
            time.sleep(1.0)
        said = self.compose("ps", "-a", well=False) + self.compose("logs", "--tail", "15", "--no-color", well=False)
        raise AssertionError(f"not within {PATIENCE * within_s:g} s: {what}\n{said}")

    def health(self) -> dict[str, str]:
        """Container → healthy, starting, unhealthy, or what it does else."""
        lines = self.compose("ps", "-a", "--format", "{{.Service}} {{.Health}} {{.State}} {{.Name}}").splitlines()
        found = [line.split() for line in lines]
        return {one[-1]: one[1] for one in found if one[0] != "secret"}

    def is_well(self) -> bool:
        states = self.health()
        return len(states) >= len(SERVICES) and set(states.values()) == {"healthy"}

    def steps(self) -> list[dict[str, Any]]:
        """What the trainer wrote down of each version."""
        said = self.compose("exec", "-T", "scheduler", "cat", "/runs/latest/steps.jsonl", well=False)
        return [json.loads(line) for line in said.splitlines() if line.endswith("}")]

    def version(self) -> int:
        return max((step["version"] for step in self.steps()), default=0)

    def goes_on(self, versions: int = 3, within_s: float = 180) -> None:
        before = self.version()
        self.until(lambda: self.version() >= before + versions, within_s, f"trained {versions} versions past {before}")

    def slots(self) -> dict[str, dict[str, Any]]:
        return {row["slot"]: row for row in self.ask("slots")}

    def serves(self, slot: str) -> bool:
        row = self.slots().get(slot)
        return bool(row) and row["state"] == "serving" and sum(row["done"].values()) > 0
