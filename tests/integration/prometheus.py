"""A Prometheus beside a run, with the files that we ship, unchanged.

For: tests of what arrives there. Not for: what a process answers (`tests/unit/test_metrics.py`). Debian's package
`prometheus` brings both programs.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from broker.lifeline import tied_to_this_process
from tests.integration.test_launcher import until

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "deploy" / "images"
CONFIG, ALERTS = IMAGES / "prometheus.yml", IMAGES / "prometheus-alerts.yml"

needs_promtool = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="no Prometheus here, so nothing is asked of one: `apt-get install prometheus` brings it",
)


def promtool(*words: str | Path, said: str = "") -> str:
    """What it prints; it must be content."""
    done = subprocess.run(
        ["promtool", *map(str, words)], input=said, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"promtool {words[0]}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Prometheus:
    """A server that listens at a port of its own."""

    def __init__(self, printed: Path) -> None:
        self.printed = printed
        self.address = until(self.listening)
        until(self.is_ready)

    def listening(self) -> str:
        found = re.search(r"TLS is disabled.* address=(\S+)", self.printed.read_text())
        return found[1] if found else ""

    def is_ready(self) -> bool:
        return "ready to receive web requests" in self.printed.read_text()

    def ask(self, what: str, **words: str) -> Any:
        """The data of an answer of its HTTP interface. Raises HTTPError when it refuses the question."""
        address = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        return self.ask("query", query=expression)["result"]

    def targets(self) -> dict[str, str]:
        """Process → up, down or unknown."""
        found = self.ask("targets", state="active")["activeTargets"]
        return {target["labels"]["process"]: target["health"] for target in found}


@contextlib.contextmanager
def prometheus(runs: Path) -> Generator[Prometheus]:
    """As in a checkout whose runs lie in `runs`; it ends with the block."""
    place = runs.parent / "deploy" / "images"
    place.mkdir(parents=True)
    for path in (CONFIG, ALERTS):
        shutil.copy(path, place)
    argv = ["prometheus", f"--config.file={place / CONFIG.name}", f"--storage.tsdb.path={runs.parent / 'tsdb'}"]
    printed = runs.parent / "prometheus.printed"
    with printed.open("wb") as said:
        process = subprocess.Popen(
            [*argv, "--web.listen-address=127.0.0.1:0"],
            stdout=said,
            stderr=said,
            preexec_fn=tied_to_this_process(),  # noqa: PLW1509 - one system call, nothing that locks
        )
    try:
        yield Prometheus(printed)
    finally:
        process.terminate()
        process.wait(20)
