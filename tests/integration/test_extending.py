"""`docs/extending.md` is true: its own code, in modules outside the repository, is used by real runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from broker.archive import Closed, closed_groups
from broker.messages import Rollouts, Scores
from deploy.records import Record, records
from tests.integration.test_launcher import assert_balanced, lay_model, left_over, report_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"
SCRIPTED = ("rollout.engine=scripted", "train.learner=scripted")
SHORT = ("run.steps=4", "train.groups=8", "rollout.max_tokens=4", "prompts.eval.size=8", "broker.lease_s=2")


def blocks(heading: str) -> dict[str, str]:
    """The fenced blocks under a heading of the document: language → text."""
    _, _, section = DOCUMENT.read_text().partition(f"## {heading}\n")
    found = re.findall(r"^```(\w+)\n(.*?)^```", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    assert len(found) == len(dict(found)), "one block of each language"
    return dict(found)


@dataclass
class Outside:
    """A person's own folder, and their runs."""

    folder: Path
    said: str = field(default="", init=False)

    def write(self, heading: str) -> None:
        """What the document says to write, as it says it."""
        block = blocks(heading)
        name = block["python"].splitlines()[0].removeprefix("# ")
        self.module(name, block["python"])
        (self.folder / "mine.toml").write_text(block["toml"])

    def module(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *overrides: str) -> int:
        """`tidemill run mine.toml …`; the exit code."""
        return self.tidemill("run", str(self.folder / "mine.toml"), *SHORT, *overrides)

    def tidemill(self, *arguments: str) -> int:
        """With that folder on PYTHONPATH, given somewhere else; the exit code."""
        command = [sys.executable, "-m", "deploy.cli", *arguments]
        env = {**os.environ, "PYTHONPATH": str(self.folder), "TIDEMILL_RUNS": str(self.folder / "runs")}
        done = subprocess.run(
            command, env=env, cwd=self.folder / "model", capture_output=True, text=True, timeout=200, check=False
        )
        self.said = done.stdout + done.stderr
        return done.returncode

    @property
    def latest(self) -> Path:
        return (self.folder / "runs" / "latest").resolve()

    def closed(self) -> list[Closed]:
        return list(closed_groups(self.latest / "groups"))

    def steps(self) -> list[Record]:
        return records(self.latest / "steps.jsonl")

    def assert_whole(self) -> None:
        assert report_of(self.latest)["steps"] == 4
        assert report_of(self.latest)["books"]["trained"] == 32
        assert_balanced(self.latest)
        assert left_over(self.latest) == []


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    lay_model(tmp_path / "model")
    return Outside(tmp_path)


@pytest.mark.timeout(240)
def test_the_documents_first_run_learns(outside: Outside) -> None:
    outside.write("A first run of your own")
    (outside.folder / "prompts.jsonl").write_text(blocks("A first run of your own")["jsonl"])
    assert outside.tidemill("run", str(outside.folder / "mine.toml")) == 0, outside.said
    steps = outside.steps()
    assert len(steps) == 40
    assert steps[-1]["reward"] > max(0.8, steps[0]["reward"] + 0.3), steps
    assert_balanced(outside.latest)
    assert left_over(outside.latest) == []


def test_the_documents_prompts_are_trained_on(outside: Outside) -> None:
    outside.write("A prompt source")
    assert outside.run(*SCRIPTED) == 0, outside.said
    outside.assert_whole()
    for group in (one.group for one in outside.closed()):
        word = group.prompt.text.removesuffix("=")
        assert (group.prompt.task, group.prompt.answer) == ("reversal", word[::-1])
        assert set(word) <= set("abcdefghijklm" if group.kind == "train" else "nopqrstuvwxyz")
        assert 2 <= len(word) <= 3


def test_the_documents_reward_is_scored_with(outside: Outside) -> None:
    outside.write("A reward")
    assert outside.run(*SCRIPTED, "model.init=.", "rollout.options.length=[1, 4]") == 0, outside.said
    outside.assert_whole()
    trained = [one.group for one in outside.closed() if one.fate == "trained"]
    assert len(trained) >= 32
    for group in trained:
        assert group.rollouts is not None
        assert group.scores is not None
        short = [float(len(text) <= 3) for text in group.rollouts.texts]
        right = [float(text == group.prompt.answer) for text in group.rollouts.texts]
        assert group.scores.parts["brief"].tolist() == short
        assert group.scores.parts["exact_match"].tolist() == right
        assert group.scores.rewards.tolist() == [a + 0.5 * b for a, b in zip(right, short, strict=True)]


def test_the_documents_judge_scores_beside_a_rule(outside: Outside) -> None:
    outside.write("A judge")
    assert outside.run(*SCRIPTED, "model.init=.", "rollout.options.length=[1, 4]") == 0, outside.said
    outside.assert_whole()
    logs = {path.stem for path in (outside.latest / "logs").glob("*.jsonl")}
    assert ("judge-0" in logs, "reward-0" in logs) == (True, False)
    scored = [one.group for one in outside.closed() if one.group.scores]
    assert len(scored) >= 32
    for group in scored:
        assert group.rollouts is not None
        assert group.scores is not None
        agree = np.mean([[len(text) <= most for text in group.rollouts.texts] for most in (1, 2, 3)], axis=0)
        right = [float(text == group.prompt.answer) for text in group.rollouts.texts]
        parts = {name: values.tolist() for name, values in group.scores.parts.items()}
        assert parts["Panel"] == (agree > 0.5).astype(float).tolist()
        assert parts["Panel.agree"] == agree.astype(np.float32).tolist()
        assert parts["exact_match"] == right
        assert group.scores.rewards.tolist() == [a + 0.5 * b for a, b in zip(right, parts["Panel"], strict=True)]


@pytest.mark.timeout(240)
def test_the_documents_algorithm_trains_a_real_model(outside: Outside) -> None:
    outside.write("An algorithm")
    length = 'reward.parts=[{name = "length", options = {target = 4}}]'
    assert outside.run("rollout.engine=torch", length) == 0, outside.said
    outside.assert_whole()
    for step in outside.steps():
        trained = [one.group for one in outside.closed() if one.version == step["version"]]
        assert step["trained_actions"] == sum(winners(group.rollouts, group.scores) for group in trained)
        assert step["surprise"] > 0
        assert step["grad_norm"] > 0


def winners(rollouts: Rollouts | None, scores: Scores | None) -> int:
    """Actions of the siblings with the highest reward, where there is a lower one."""
    assert rollouts is not None
    assert scores is not None
    rewards, lengths = scores.rewards, np.diff(rollouts.offsets)
    return int(lengths[(rewards == rewards.max()) & (rewards > rewards.min())].sum())


def test_the_documents_engine_samples(outside: Outside) -> None:
    outside.write("An engine")
    assert outside.run("train.learner=scripted", "model.init=.") == 0, outside.said
    outside.assert_whole()
    groups = [one.group for one in outside.closed()]
    assert {group.kind for group in groups} == {"train", "eval"}
    texts = [text.replace(" ", "") for group in groups if group.rollouts for text in group.rollouts.texts]
    assert len(texts) >= 32 * 8
    assert all(re.fullmatch("[37]{4}", text) for text in texts)
    assert len(set(texts)) == 16
    chances = np.concatenate([group.rollouts.logprobs for group in groups if group.rollouts])
    np.testing.assert_allclose(chances, -np.log(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "module", "said"),
    [
        ("no_such_module:make", "", "put the folder that holds no_such_module on PYTHONPATH"),
        ("my_algorithms:mak", "def make(settings): ...", 'has no "mak"; nothing was started; did you mean "make"?'),
        ("my_algorithms:make", "def make(settings:", "does not parse"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_before_anything_is_written(
    outside: Outside, name: str, module: str, said: str
) -> None:
    outside.module("my_algorithms.py", module)
    (outside.folder / "mine.toml").write_text(f'[algorithm]\nname = "{name}"\n')
    assert outside.run() == 2
    assert outside.said.startswith(f'tidemill: [algorithm] name = "{name}" ')
    assert said in outside.said
    assert len(outside.said.splitlines()) == 1
    assert not (outside.folder / "runs").exists()


@pytest.mark.parametrize(
    ("setting", "module", "said"),
    [
        (
            "algorithm.name",
            "def make(): ...",
            '"mine:make": it cannot be called as make(…): too many positional arguments; nothing was started',
        ),
        (
            "rollout.engine",
            "class Half:\n    def step(self): ...\ndef make(*, model_folder, settings, seed):\n    return Half()\n",
            '"mine:make": it made a Half without capacity, add, is_idle, load, logprobs, close; nothing was started',
        ),
        (
            "rollout.engine",
            "1 / 0\ndef make(): ...",
            "mine.py:1); nothing was started; known: torch, vllm, scripted, or module:attribute",
        ),
    ],
)
def test_an_extension_of_another_form_ends_the_run_with_one_message(
    outside: Outside, setting: str, module: str, said: str
) -> None:
    outside.module("mine.py", module)
    (outside.folder / "mine.toml").touch()
    assert outside.run(*SCRIPTED, "model.init=.", f"{setting}=mine:make") == 2
    assert said in outside.said
    assert "Traceback" not in outside.said
    assert '{"' not in outside.said
    assert left_over(outside.latest) == []
    assert report_of(outside.latest)["books"]["admitted"] == report_of(outside.latest)["books"]["open"]


def test_a_reward_that_fails_for_every_answer_ends_the_run_and_a_mended_one_goes_on(outside: Outside) -> None:
    """The first own reward seldom works at once: its author hears so within seconds, and loses nothing."""
    head = "def reward(*, prompt, completion, answer, meta):\n    "
    outside.module("mine.py", f'{head}raise KeyError("gold")\n')
    (outside.folder / "mine.toml").write_text('[reward]\nparts = [{ name = "mine:reward" }]\n')
    assert outside.run(*SCRIPTED, "model.init=.") == 2
    assert "groups in a row were buried and none got through, the newest for: RuleFailed: " in outside.said
    assert f"rule reward: KeyError: 'gold' ({outside.folder}/mine.py:2)" in outside.said
    assert "Traceback" not in outside.said
    assert left_over(outside.latest) == []
    assert report_of(outside.latest)["books"]["trained"] == 0

    outside.module("mine.py", f"{head}return float(len(completion) % 2)\n")
    assert outside.tidemill("resume") == 0, outside.said
    outside.assert_whole()
