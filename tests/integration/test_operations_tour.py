"""Operations' section "Slots and the scheduler": every line of its blocks is typed into a shell, in order, against a
real server, real workers and real schedulers, and its answer is held against what the section says of it.

A line that is added there must be given its answer here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_launcher import left_over, until

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

RUN = "tidemill run paced --slots 3"
WORKER = "celery -A scheduler.slots worker -n gpu0@%h -P prefork -c 1 -Q control --slot gpu0 --initial-pool rollout"
SCHEDULER = "tidemill scheduler"
IN_A_TERMINAL = (RUN, WORKER, SCHEDULER)
"""They go on until they are ended."""
ORDERS = ("tidemill slots move", "tidemill slots unpin", "celery -A scheduler.slots control")
"""Typed once: the second time they would answer something else."""

SHOWS: dict[str, list[str]] = {
    RUN: [r"cores: .*slot-2 1 thread anywhere"],
    'eval "$(tidemill slots env)"': [r"TIDEMILL_BROKER_URL=unix:///\S+\.sock", r"TIDEMILL_FLEET=paced-.*\.fleet"],
    WORKER: [r'"event": "controller started"'],
    SCHEDULER: [r"watching: \S+\.\d+ leads"],
    "celery -A scheduler.slots status": [r"gpu0@\S+: OK", r"slot-2@paced-\S+: OK", r"4 nodes online"],
    "celery -A scheduler.slots inspect ping": [r"gpu0@\S+: OK\s+pong", r"4 nodes online"],
    "celery -A scheduler.slots inspect -d gpu0@$HOSTNAME slot_status": [
        r'"slot": "gpu0"',
        r'"pool": "(rollout|judge)"',
        r'"state": "serving"',
        r'"epoch": \d+',
        r'"pid": [1-9]\d+',
    ],
    "tidemill slots": [
        r"slot +devices +state +pool +wanted +for +in hand +done +moves +why",
        r"gpu0 .*(what the slot came with|move \d)",
        r"slot-0 .* train ",
        r"decided \d+ s ago: (stay|move)",
    ],
    "tidemill inspect decisions": [
        r"at \(UTC\) +times +slots +decision +moves",
        r"\d\d:\d\d:\d\d +\d+ +rollout \d",
        r"(stay|move \d+ \w+ → \w+): ",
    ],
    "timeout 5 tidemill scheduler --dry-run": [r"^(stay|move \d+ \w+ → \w+|waiting)"],
    "tidemill slots move gpu0 judge": [r"^gpu0 is pinned to judge \(epoch \d+\)"],
    "tidemill slots unpin gpu0": [r"^gpu0 is no longer pinned; it stays in judge \(epoch \d+\)"],
    "celery -A scheduler.slots control -d gpu0@$HOSTNAME drain_slot": [r'"accepted": \d+'],
    "celery -A scheduler.slots control -d gpu0@$HOSTNAME assign_pool rollout 100": [r'"accepted": 100'],
    "tidemill redis HGETALL tm:{fleet}:run": [r'"run" => "paced-', r'"folder" => "/', r'"url" => "unix://'],
    "tidemill redis HGETALL tm:{fleet}:slot:gpu0": [
        r'"pool" => "\w+"',
        r'"epoch" => "1\d\d"',
        r'"reason" => "',
        r'"by" => "',
    ],
    "tidemill redis HGET tm:{fleet}:said gpu0": [r'\\"state\\": \\"\w+\\"', r'\\"work\\": '],
    "tidemill redis HGETALL tm:{fleet}:leader": [r'"holder" => "\S+\.\d+"', r'"epoch" => "1"'],
    "tidemill redis XREVRANGE tm:{fleet}:decisions + - COUNT 1": [r'"said" => "', r'"decision" => .*numbers'],
    "celery -A scheduler.slots result $(celery -A scheduler.slots call tidemill.versions)": [
        r"'version': 0, 'epoch': 1, 'path': 'versions/000000-e001', 'tensors': (True|False)"
    ],
    "celery -A scheduler.slots result "
    '$(celery -A scheduler.slots call tidemill.export_version -a \'["newest", "~/exported"]\')': [
        r"'to': '/.*/exported', 'digest'"
    ],
    "celery -A scheduler.slots result $(celery -A scheduler.slots call tidemill.prune_versions -k '{\"keep\": 1}')": [
        r"'keep': 1, 'dry_run': True"
    ],
}
"""Line of the section → patterns that its answer must match."""


def typed_lines() -> list[str]:
    """The commands of the section's blocks, as they stand there, without their comments."""
    section = OPERATIONS.read_text().split("## Slots and the scheduler", 1)[1].split("\n## ", 1)[0]
    blocks = section.split("```")[1::2]
    return [command for line in "\n".join(blocks).splitlines() if (command := line.partition("  #")[0].strip())]


class Operator:
    """A shell, and terminals that stay open beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        told = {"PATH": path, "TIDEMILL_RUNS": str(folder / "runs"), "HOME": str(folder), "COLUMNS": "250"}
        self.env = {**os.environ, **told}
        self.terminals: dict[str, subprocess.Popen[bytes]] = {}

    def open(self, line: str) -> None:
        with (self.folder / f"{len(self.terminals)}.said").open("wb") as said:
            self.terminals[line] = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], env=self.env, cwd=self.folder, stdout=said, stderr=said
            )

    def said(self, line: str) -> str:
        return (self.folder / f"{list(self.terminals).index(line)}.said").read_text()

    def type(self, line: str) -> tuple[int, str]:
        """Exit code and answer; what `eval` sets stays set."""
        script = f"{line}\nenv | grep ^TIDEMILL_" if line.startswith("eval ") else line
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if line.startswith("eval "):
            self.env |= dict(pair.split("=", 1) for pair in done.stdout.splitlines())
        return done.returncode, done.stdout + done.stderr

    def leave(self) -> None:
        """As a person does: schedulers and workers first, Ctrl-C for the run."""
        for line, process in reversed(self.terminals.items()):
            process.send_signal(signal.SIGINT if line == RUN else signal.SIGTERM)
        for process in self.terminals.values():
            try:
                process.wait(60)
            finally:
                process.kill()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path)
    try:
        yield made
    finally:
        made.leave()
    assert left_over(tmp_path) == []


def test_every_line_of_the_section_has_its_answer_here() -> None:
    assert typed_lines() == list(SHOWS)


@pytest.mark.timeout(300)
def test_the_section_can_be_typed_from_its_first_line_to_its_last(operator: Operator) -> None:
    begun = time.monotonic()
    for line in typed_lines():
        answer = answered(operator, line)
        sys.stdout.write(f"{time.monotonic() - begun:.1f} s $ {line}\n{answer}\n")
    exported = {path.name for path in (operator.folder / "exported").iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= exported


def answered(operator: Operator, line: str) -> str:
    """Its answer, once it shows what it must; what a moment lacks a later one has."""
    patterns = [re.compile(pattern, re.MULTILINE) for pattern in SHOWS[line]]
    if line in IN_A_TERMINAL:
        operator.open(line)
    seen: list[str] = []

    def shows_it() -> bool:
        if line in IN_A_TERMINAL:
            assert operator.terminals[line].poll() is None, operator.said(line)
            seen.append(operator.said(line))
        else:
            code, said = operator.type(line)
            seen.append(said)
            if code not in (0, 124 if line.startswith("timeout ") else 0) and line.startswith(ORDERS):
                raise AssertionError(said)
        return all(pattern.search(seen[-1]) for pattern in patterns)

    try:
        if line.startswith(ORDERS):
            assert shows_it()
        else:
            until(shows_it, within_s=60)
    except AssertionError as error:
        raise AssertionError(f"{line}: {error}; it answered\n{seen[-1] if seen else 'nothing'}") from None
    return seen[-1]
