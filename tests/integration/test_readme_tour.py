"""README's tour: every line of its block "Look inside" is typed into a shell beside a live run, as a newcomer would.

A line that is added there is executed too: it must succeed, answer something, and answer in words. What some lines
must show besides is said in `SHOWS`; those lines must stay in the tour.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.command_line import tidemill
from tests.integration.test_launcher import QUICK, Launched, lay_model, left_over, until

README = Path(__file__).parents[2] / "README.md"
SLOW_SAMPLING = ["rollout.options={pace_s=0.1}", "run.steps=100000"]
"""Eight tenths of a second a step: there is always something in hand to look at."""

GROUP = r'"(addition|eval)/\d+/\d+"'
SHOWS: dict[str, list[str]] = {
    "tidemill status": [
        r"step \d+/100000",
        r"admitted \d+ = trained \d+ \+ retired \d+ \+ buried \d+ \+ open \d+",
        r"rollout +prompts +1 +1 +[01] +\d+ +\d+",
        r"rollout-0 .* \d+%",
        r"nothing is stuck",
    ],
    "tidemill redis XRANGE tm:{}:prompts - + COUNT 2": [
        rf'^1\) "\d+-\d+"\n +1# "group" => {GROUP}\n +2# "kind" => "(train|eval)"',
        r'"floor" => "\d+"',
        r'"last_version" => "\d+"',
    ],
    "tidemill redis XINFO GROUPS tm:{}:prompts": [
        r'"name" => "rollout"',
        r'"pending" => \(integer\) [1-9]',
        r'"lag" => \(integer\) \d+',
    ],
    "tidemill redis XPENDING tm:{}:prompts rollout": [
        r'^1\) \(integer\) [1-9]\d*\n2\) "\d+-\d+"\n3\) "\d+-\d+"\n4\) 1\) 1\) "rollout-0\.\d+"\n +2\) "[1-9]\d*"'
    ],
    "tidemill redis HGET tm:{}:open {group}": [r'^"(prompts|rollouts|scored) \d+-\d+ (train|eval) \d+ \d+"$'],
    "tidemill redis HGETALL tm:{}:group:{group}": [
        r'"prompt" => "\d\d\+\d\d="',
        r'"answer" => "\d{3}"',
        r'"r7\.text" => "\d \d \d </s>"',
        r'"r7\.reward" => "[01]"',
        r'"logprobs:f4" => \[-\d\.\d+, ',
        r'"spans:i4:\d+x4" => \[\[0, 0, \d, \d+\], \[',
    ],
    "tidemill redis HGETALL tm:{}:counts": [r'"train\.admitted" => "\d+"', r'"train\.trained" => "[1-9]\d*"'],
    "tidemill inspect open": [r"^group +stream +entry +kind +floor +last_version", r"addition/0/\d+ +scored"],
    "tidemill inspect ledger": [r"^version +epoch", r"8: addition/0/\d+, addition/0/\d+ …"],
    "tidemill inspect weights": [r"versions/\d{6}-e001", r"rollout-0\.\d+"],
    "tidemill show eval/0/0": [
        r"^eval/0/0 · eval · retired: evaluated$",
        r"actions \(v0 0–\d\) · ended by \w+ · reward [01]",
        r"\d\d:\d\d:\d\d\.\d{3} +rollouts +\d+\.\d{3} s +reward-0 +retired: evaluated",
    ],
    "tidemill logs --tail 9": [r"^\d\d:\d\d:\d\d\.\d{3} +trainer-0 +trained +version=\d+ +reward="],
    "tidemill report": [r"held-out accuracy \d", r"\d+ steps in \d+ s", r"curve: .*curve\.png"],
}
"""Line of the tour → patterns that its answer must match."""


def tour() -> list[str]:
    """The commands of the block, as they stand there, without their comments."""
    section = README.read_text().split("## Look inside", 1)[1].split("\n## ", 1)[0]
    block = section.split("```", 2)[1]
    return [command for line in block.splitlines() if (command := line.partition("#")[0].strip())]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """A run of real processes over a real server, in its third version at least."""
    settings = load_run("addition", [*QUICK, *SLOW_SAMPLING])
    folder = new_run_folder(settings, tmp_path_factory.mktemp("tour") / "runs", datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    launched = Launched(folder)
    try:
        launched.reach(3, within_s=60)
        yield launched
    finally:
        launched.interrupt()
        launched.end()
    assert left_over(folder) == []


def typed(line: str, live: Launched) -> subprocess.CompletedProcess[str]:
    """What a shell answers to this line, with the environment's commands on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "TIDEMILL_RUNS": str(live.folder.parent), "COLUMNS": "80"}
    return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_tour_holds_the_lines_whose_answers_are_known() -> None:
    assert set(SHOWS) <= set(tour())


@pytest.mark.parametrize("line", tour())
def test_a_line_of_the_tour_answers_in_words(line: str, live: Launched) -> None:
    """What a moment lacks, such as a group that is scored, a later one has."""
    patterns = [re.compile(pattern, re.MULTILINE) for pattern in SHOWS.get(line, [r"\w"])]
    seen: list[str] = []

    def shows_it() -> bool:
        answer = typed(line, live)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "\\x" not in answer.stdout, f"bytes where a person looks:\n{answer.stdout}"
        if line.startswith("tidemill redis "):
            assert_stock_tools_can_say_it(answer.stderr)
        seen.append(answer.stdout)
        return all(pattern.search(answer.stdout) for pattern in patterns)

    try:
        until(shows_it, within_s=40)
    except AssertionError as error:
        raise AssertionError(f"{line}: {error}; it answered\n{seen[-1] if seen else 'nothing'}") from None


def test_the_books_that_the_tour_shows_balance(live: Launched) -> None:
    answer = typed("tidemill redis HGETALL tm:{}:counts", live).stdout
    counts = {name: int(value) for name, value in re.findall(r'"train\.([\w.]+)" => "(\d+)"', answer)}
    assert counts.pop("admitted") == sum(counts.values()), answer


def assert_stock_tools_can_say_it(said: str) -> None:
    """What `tidemill redis` says it asked is a whole command that the server understands. (The group it names may be
    closed by now, so the answer may be empty.)
    """
    words = shlex.split(said)
    assert words[:3] == ["redis-cli", "-3", "-s"], said
    with redis.Redis(unix_socket_path=words[3]) as client:
        client.execute_command(*words[4:])
    for tool in filter(shutil.which, ("redis-cli", "valkey-cli")):
        subprocess.run([tool, "-e", *words[1:]], capture_output=True, timeout=30, check=True)


def test_a_group_is_named_only_while_one_is_open(tmp_path: Path) -> None:
    other = new_run_folder(load_run("addition", QUICK), tmp_path, datetime.now(UTC))
    answer = tidemill("redis", "HGETALL", "tm:{}:group:{group}", runs=tmp_path)
    assert answer.returncode == 2
    assert f"no group of {other.name} is open" in answer.stderr
