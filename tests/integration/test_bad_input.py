"""Bad input, as a person meets it: one message (what, with values; what happens next; the mend), nothing half-written,
nobody left behind. Servers that cannot be used are in `test_launcher` too; what a second trainer does to the books
is in `tests/faults`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from broker import embedded_server
from deploy.run_check import saved_run
from tests.command_line import among, command_line
from tests.integration.test_launcher import Launched, ask, assert_balanced, lay_model, left_over, report_of

QUICK = (
    "model.init=model",
    "rollout.engine=scripted",
    "rollout.max_tokens=4",
    "train.learner=scripted",
    "train.groups=8",
    "run.steps=3",
    "broker.lease_s=2",
)
NO_MEASURE = ("prompts.eval.size=0", "run.stop_when=''", "model.warm_start=none")
UNREACHABLE = "redis://127.0.0.1:1/0"


class Person:
    """Somebody in a folder of their own, with a model there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        lay_model(folder / "model")

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command_line(*arguments),
            env=among(self.runs, **environment),
            cwd=cwd or self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tidemill(self, *arguments: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = self.start(*arguments, cwd=cwd, **environment)
        said, wrong = process.communicate(timeout=100)
        return process.returncode, said, wrong

    @property
    def latest(self) -> Path:
        return (self.runs / "latest").resolve()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.rglob("*"))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def prompts(folder: Path, *lines: str) -> str:
    """A data file; the override that names it."""
    (folder / "data.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return 'prompts.source=[{source = "jsonl", path = "data.jsonl"}]'


def line(prompt: str) -> str:
    return json.dumps({"prompt": prompt, "answer": "2"})


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        (None, [], "there is no run file 'mine.toml' and no shipped run of that name; nothing was started; shipped"),
        (
            "[train\ngroups = 4\n",
            [],
            "mine.toml is not TOML: Expected ']' at the end of a table declaration (at line 1",
        ),
        ("[train]\ngroop = 4\n", [], '[train] groop: unknown key; nothing was started; did you mean "groups"?'),
        ("[trian]\ngroups = 4\n", [], '[trian]: unknown section; nothing was started; did you mean "[train]"?'),
        ("pools = { rollout = 3 }\n", [], "[pools.rollout] = 3 is no section; nothing was started; write [pools.roll"),
        ("", ["model.init=elsewhere"], '/elsewhere": no config.json there; nothing was started; give a Hugging Face'),
        ("", ["prompts.source=jsonl", "prompts.options.path=a.jsonl"], "/a.jsonl: there is nothing there; nothing was"),
    ],
)
def test_what_a_look_at_the_settings_shows_is_told_before_anything_is_made(
    person: Person, text: str | None, overrides: list[str], said: str
) -> None:
    if text is not None:
        (person.folder / "mine.toml").write_text(text)
    before = person.files()
    code, printed, wrong = person.tidemill("run", "mine.toml", *overrides)
    assert (code, printed) == (2, "")
    assert wrong.startswith("tidemill: ")
    assert said in wrong
    assert len(wrong.splitlines()) == 1
    assert person.files() == before


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_model_folder_without_a_tokenizer_is_refused_before_anything_is_made(
    person: Person, check: list[str]
) -> None:
    (person.folder / "model" / "tokenizer.json").unlink()
    before = person.files()
    code, printed, wrong = person.tidemill("run", "addition", *QUICK, *check)
    assert (code, printed) == (2, "")
    assert f'tidemill: [model] init = "{person.folder}/model": no tokenizer.json there; nothing was started' in wrong
    assert "save_pretrained(FOLDER)" in wrong
    assert person.files() == before


BAD_LINES = ([line("1+1="), '{"prompt": "1+1="', line("1+2="), '{"query": "1+1="}', '"1+1="'], "data.jsonl:2: no JSON")
TOO_LONG = (
    [line("1" * 300), *(line(f"{number}+1=") for number in range(7))],
    "301 tokens and [rollout] max_tokens = 4",
)


@pytest.mark.parametrize(("lines", "said"), [BAD_LINES, TOO_LONG], ids=["bad lines", "too long"])
def test_prompts_that_cannot_be_used_stop_the_run_before_any_role_starts_and_mended_ones_go_on(
    person: Person, lines: list[str], said: str
) -> None:
    code, printed, wrong = person.tidemill("run", "addition", *QUICK, *NO_MEASURE, prompts(person.folder, *lines))
    assert (code, wrong) == (2, "")
    assert said in printed
    assert "Traceback" not in printed
    assert '{"' not in printed
    assert not (person.latest / "model").exists()
    assert {path.stem for path in (person.latest / "logs").iterdir()} == {"launcher", "initial-model"}
    assert left_over(person.latest) == []

    prompts(person.folder, *(line(f"{number}+1=") for number in range(40)))
    code, printed, _ = person.tidemill("resume")
    assert code == 0, printed
    assert report_of(person.latest)["steps"] == 3
    assert_balanced(person.latest)


def test_one_prompt_too_long_further_on_is_buried_with_its_numbers_and_the_run_goes_on(person: Person) -> None:
    data = prompts(person.folder, *(line(f"{number}+1=") for number in range(199)), line("7" * 300))
    everything = ("prompts.passes=1", "run.steps=100", "train.groups=32", "rollout.options.accuracy=0.5")
    code, printed, _ = person.tidemill("run", "addition", *QUICK, *NO_MEASURE, data, *everything)
    assert code == 0, printed
    books = report_of(person.latest)["books"]
    assert (books["admitted"], books["trained"], books["buried"]) == (200, 199, 1)
    dead = ask(person.latest, "inspect", "dead", "--json")
    assert "301 prompt tokens and 4 more" in json.dumps(dead)


def test_a_run_that_could_not_reach_its_server_goes_on_when_it_can(person: Person) -> None:
    code, _, wrong = person.tidemill("run", "addition", *QUICK, *NO_MEASURE, TIDEMILL_BROKER_URL=UNREACHABLE)
    assert code == 2
    assert wrong.startswith("tidemill: [broker] url = redis://127.0.0.1:1/0 does not answer within 5 s")
    assert "nothing was started; start that server, correct the address" in wrong
    assert len(wrong.splitlines()) == 1
    assert {path.name for path in (person.latest / "logs").iterdir()} == {"launcher.jsonl"}
    code, printed, _ = person.tidemill("resume")
    assert code == 0, printed


def test_a_server_that_refuses_the_password_is_not_called_silent(person: Person) -> None:
    with embedded_server.serving(person.folder / "server", 64) as url, redis.Redis.from_url(url) as client:
        client.config_set("requirepass", "sesame")
        code, _, wrong = person.tidemill("run", "addition", *QUICK, *NO_MEASURE, TIDEMILL_BROKER_URL=url)
        client.config_set("requirepass", "")
    assert code == 2
    assert f"[broker] url = {url} refuses who we say we are (" in wrong
    assert "the password there or in the file that TIDEMILL_BROKER_PASSWORD_FILE names" in wrong
    assert len(wrong.splitlines()) == 1


def test_settings_that_were_spoiled_are_one_message(person: Person) -> None:
    code, _, _ = person.tidemill("run", "addition", *QUICK, *NO_MEASURE, TIDEMILL_BROKER_URL=UNREACHABLE)
    assert code == 2
    (person.latest / "settings.json").write_text('{"run": ')
    code, printed, wrong = person.tidemill("resume")
    assert (code, printed) == (2, "")
    assert "settings.json is no JSON" in wrong
    assert "put back what the run wrote" in wrong
    assert len(wrong.splitlines()) == 1


def test_of_ten_launches_of_one_run_one_goes_on_and_nine_say_so_and_leave_nothing(person: Person) -> None:
    person.tidemill("run", "addition", *QUICK, *NO_MEASURE, "run.steps=20", TIDEMILL_BROKER_URL=UNREACHABLE)
    launches = [Launched(person.latest) for _ in range(10)]
    codes = [launched.end(within_s=100) for launched in launches]
    assert sorted(codes) == [0] + [2] * 9, [launched.text() for launched in launches]
    for launched, code in zip(launches, codes, strict=True):
        if code:
            said = launched.text()
            assert f"tidemill: {person.latest.name} is being run already, by " in said
            assert f"nothing was started; look with `tidemill status {person.latest.name}`" in said
            assert len(said.splitlines()) == 1
    assert report_of(person.latest)["steps"] == 20
    assert report_of(person.latest)["books"]["trained"] == 160
    assert_balanced(person.latest)
    assert left_over(person.latest) == []


def test_ten_runs_at_once_get_ten_folders_and_ten_messages(person: Person) -> None:
    command = ("run", "addition", *QUICK, *NO_MEASURE)
    begun = [person.start(*command, TIDEMILL_BROKER_URL=UNREACHABLE) for _ in range(10)]
    ended = [process.communicate(timeout=100) for process in begun]
    assert [process.returncode for process in begun] == [2] * 10, ended
    assert all(wrong.startswith("tidemill: [broker] url") and len(wrong.splitlines()) == 1 for _, wrong in ended)
    folders = {said.splitlines()[0].rpartition(" in ")[2] for said, _ in ended}
    assert len(folders) == 10
    assert all(saved_run(Path(folder)).run.steps == 3 for folder in folders)
    assert str(person.latest) in folders


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_ten_runs_at_once_in_one_folder_all_go_to_their_end(person: Person) -> None:
    begun = [person.start("run", "addition", *QUICK, *NO_MEASURE, "run.steps=1") for _ in range(10)]
    ended = [process.communicate(timeout=250) for process in begun]
    assert [process.returncode for process in begun] == [0] * 10, ended
    folders = [path for path in person.runs.iterdir() if path.is_dir() and path.name.startswith("addition-")]
    assert len(folders) == 10
    for folder in folders:
        assert report_of(folder)["steps"] == 1
        assert_balanced(folder)
    assert left_over(person.runs) == []
    assert not [path for path in person.runs.rglob(".*") if path.name != ".cache"], "a draft was left"


def test_a_launcher_whose_trainer_was_fenced_says_so_ends_everything_and_the_run_can_be_resumed(person: Person) -> None:
    endless = (*QUICK, *NO_MEASURE, "train.options={pace_s=0.1}", "run.steps=100000")
    person.tidemill("run", "addition", *endless, TIDEMILL_BROKER_URL=UNREACHABLE)
    launched = Launched(person.latest)
    launched.reach(3, within_s=60)
    env = {**os.environ, "TIDEMILL_BROKER_URL": embedded_server.address(person.latest / "redis")}
    command = [sys.executable, "-m", "consumers", "trainer", "--run", str(person.latest), "--name", "trainer-9"]
    second = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        assert launched.end(within_s=60) == 76, launched.text()
    finally:
        second.terminate()
        second.wait(20)
    assert "trainer-0 was fenced: another of its kind with a higher epoch has taken over; everything" in launched.text()
    assert f"go on with `tidemill resume {person.latest.name}`" in launched.text()
    assert left_over(person.latest) == []
    reached = launched.snapshot()["version"]
    again = Launched(person.latest)
    again.reach(reached + 3, within_s=60)
    again.interrupt()
    assert again.end(within_s=60) == 130, again.text()
    assert_balanced(person.latest)


@pytest.mark.parametrize("named", ["in the file", "on the command line"])
def test_relative_paths_mean_the_same_when_the_run_is_resumed_from_elsewhere(
    person: Person, tmp_path_factory: pytest.TempPathFactory, named: str
) -> None:
    """Those of a run file begin at its own folder, those of a command where it is given."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    prompts(person.folder, *(line(f"{number}+1=") for number in range(60)))
    (person.folder / "mine.toml").write_text(
        '[model]\ninit = "model"\n[prompts]\nsource = "jsonl"\noptions = { path = "data.jsonl" }\n'
        if named == "in the file"
        else ""
    )
    given = (
        () if named == "in the file" else ("model.init=model", 'prompts.source=[{source="jsonl",path="data.jsonl"}]')
    )
    start = elsewhere if named == "in the file" else person.folder
    command = ("run", str(person.folder / "mine.toml"), *given, *QUICK[1:])
    code, _, wrong = person.tidemill(*command, cwd=start, TIDEMILL_BROKER_URL=UNREACHABLE)
    assert code == 2
    assert "does not answer" in wrong
    code, printed, _ = person.tidemill("resume", cwd=tmp_path_factory.mktemp("another"))
    assert code == 0, printed
    assert report_of(person.latest)["steps"] == 3
