"""The command line on its own: help, checks, refusals with their exit codes, the doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import tidemill


def test_a_check_says_that_the_settings_are_sound_and_starts_nothing(tmp_path: Path) -> None:
    answer = tidemill("run", "addition", "train.lr=1e-4", "--check", runs=tmp_path / "runs")
    prompts, sound = answer.stdout.splitlines()
    assert (answer.returncode, sound) == (0, "addition: the settings are sound")
    assert prompts.startswith("prompts: addition begins with '")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "adition"], 'did you mean "addition"?'),
        (["run", "addition", "train.stalenes=1"], 'did you mean "staleness"?'),
        (["run", "addition", 'reward.parts=[{name="json:loads"}]'], "loads: TypeError: missing a required argument"),
        (["run", "addition", 'reward.parts=[{name="json:loads"}]', "--check"], "it is called as rule(*, prompt,"),
        (["run", "addition", "--slots", "0"], "0 slots cannot run anything"),
        (["settings", "trian"], 'did you mean "train"?'),
        (["resume", "addition-1"], "there is no run 'addition-1'"),
        (["inspect", "ledgers"], "known: ledger, dead, weights, open, decisions, runs"),
        (["status"], "there is no run 'latest'"),
    ],
)
def test_what_cannot_be_done_is_one_message_with_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    answer = tidemill(*arguments, runs=tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.startswith("tidemill: ")
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_section_is_explained_for_people_and_for_programs(tmp_path: Path) -> None:
    shown = tidemill("settings", "train", runs=tmp_path, COLUMNS="200").stdout
    assert "[train] options of deepspeed" in shown
    assert '"wait", "recycle", "retire", "keep"' in shown
    rows = json.loads(tidemill("settings", "train", "--json", runs=tmp_path).stdout)
    assert {row["section"] for row in rows} == {"train", "train.options"}
    assert [row["default"] for row in rows if row["key"] == "staleness"] == ["1"]


def test_the_doctor_starts_a_server_and_ends_it(tmp_path: Path) -> None:
    answer = tidemill("doctor", runs=tmp_path)
    assert answer.returncode == 0, answer.stdout
    for words in ("python: 3.", "cores:", "torch: 2.", "embedded server: valkey", "shipped runs: addition"):
        assert words in answer.stdout


def test_the_doctor_says_when_the_given_server_does_not_answer(tmp_path: Path) -> None:
    answer = tidemill("doctor", runs=tmp_path, TIDEMILL_BROKER_URL="redis://127.0.0.1:1/0")
    assert answer.returncode == 2
    assert "bad  TIDEMILL_BROKER_URL: fails; [broker] url = redis://127.0.0.1:1/0 does not answer" in answer.stdout
