"""A run file is checked whole, at once, and quickly; every message names key, value and mend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.errors import Misconfigured
from broker.settings import BrokerSection, RunSection, load_section, run_folder_settings
from deploy.cross_checks import warnings_between
from deploy.run_check import checked, load_run, saved_run
from deploy.run_files import parse_override, shipped_runs
from deploy.run_settings import RunSettings


def refusal(*overrides: str, name: str = "addition") -> str:
    with pytest.raises(Misconfigured) as caught:
        load_run(name, overrides)
    message = str(caught.value)
    assert all("nothing was started" in line for line in message.splitlines())
    return message


def test_every_shipped_run_passes_its_own_check() -> None:
    assert "addition" in shipped_runs()
    for name in shipped_runs():
        assert load_run(name).run.name == name


def test_a_name_nobody_ships_is_answered_with_the_nearest() -> None:
    assert 'did you mean "addition"?' in refusal(name="adition")


def test_a_file_of_ones_own_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[train]\ngroups = 4\n")
    settings = load_run(str(tmp_path / "mine.toml"))
    assert (settings.run.name, settings.train.groups, settings.train.staleness) == ("mine", 4, 1)


def test_a_dotted_path_is_accepted_wherever_a_name_is() -> None:
    assert load_run("addition", ["train.learner=json:loads", "rollout.engine=json:load"]).train.learner == "json:loads"


def test_none_takes_a_value_away() -> None:
    assert load_run("addition").model.warm_start is not None
    assert load_run("addition", ["model.warm_start=none"]).model.warm_start is None


def test_overrides_are_toml_values_and_bare_words_are_strings() -> None:
    settings = load_run(
        "addition",
        ["train.lr=1e-4", "rollout.engine=scripted", "prompts.eval.size=64", "algorithm.dynamic_sampling=true"],
    )
    assert (settings.train.lr, settings.rollout.engine, settings.prompts.eval.size) == (1e-4, "scripted", 64)
    assert settings.algorithm.dynamic_sampling
    assert settings.prompts.eval.every == 20
    assert parse_override('prompts.options={path = "a b.jsonl"}') == (["prompts", "options"], {"path": "a b.jsonl"})


@pytest.mark.parametrize("text", ["lr=3", "train.lr", "train.lr=[1,", "train..lr=3"])
def test_an_override_of_another_form_is_refused(text: str) -> None:
    assert repr(text) in refusal(text)


def test_all_problems_come_in_one_message() -> None:
    message = refusal("train.stalenes=2", "rollout.group_size=0", "trian.lr=1", "model.warm_start.untl=0.3")
    assert '[train] stalenes: unknown key; nothing was started; did you mean "staleness"?' in message
    assert "[rollout] group_size = 0" in message
    assert '[trian]: unknown section; nothing was started; did you mean "[train]"?' in message
    assert 'did you mean "until"?' in message
    assert len(message.splitlines()) == 4


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rollout.top_p=0.9"], "top_p = 0.9"),
        (["rollout.top_k=50"], "top_k = 50"),
        (["rollout.group_size=1"], "group_size = 1"),
        (["rollout.max_rows=4"], "group_size = 8 siblings do not fit max_rows = 4"),
        (
            ["train.ranks=2", "train.learner=scripted"],
            'only the learner deepspeed is spread over ranks, not "scripted"',
        ),
        (["train.optimizer_steps=65"], "optimizer_steps = 65 with groups = 64"),
        (["prompts.eval.size=0"], "eval.size = 0 switches them off"),
        (["run.stop_when='accuracy > 3'"], "stop_when = 'accuracy > 3' is not understood"),
        (["broker.url=localhost"], 'url = "localhost" is no address'),
        (
            ["rollout.max_tokens=65536"],
            "128 open groups (groups × (staleness + 1) = 64 × 2) of 8 × 65536 tokens may take 1024 MB",
        ),
        (
            ["rollout.engine=torhc"],
            '[rollout] engine = "torhc" leads nowhere; nothing was started; did you mean "torch"?',
        ),
        (["algorithm.name=ppo"], "known: cispo, dapo"),
        (["prompts.source=[{source='adition'}]"], 'did you mean "addition"?'),
        (["reward.parts=[{name='no_such:rule'}]"], '"no_such:rule" leads nowhere'),
        (["pools.rolout.min=1"], 'did you mean "rollout"?'),
        (["pools.train.min=2", "pools.train.max=1"], "max = 1 is below min = 2"),
    ],
)
def test_what_could_never_train_is_refused_with_its_numbers(overrides: list[str], said: str) -> None:
    assert said in refusal(*overrides)


def test_what_is_unwise_is_said_but_not_refused() -> None:
    overrides = ["run.steps=10", "reward.timeout_s=500", "train.late=keep", "model.dtype=bfloat16", "train.ranks=2"]
    settings = load_run("addition", [*overrides, "pools.judge.min=1"])
    said = "\n".join(warnings_between(settings, cores=2))
    for words in (
        "eval.every = 20",
        "checkpoint_every = 20",
        "timeout_s = 500",
        'late = "keep"',
        "bfloat16",
        "ranks = 2 beside [pools.rollout] processes = 1 on 2 cores",
        "[pools.judge] without a part of [reward]",
    ):
        assert words in said
    assert warnings_between(load_run("addition"), cores=2) == []


def test_text_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[run]\nname = \n")
    assert "line 2" in refusal(name=str(tmp_path / "bad.toml"))
    (tmp_path / "stray.toml").write_text("seed = 3\n")
    assert "outside any section" in refusal(name=str(tmp_path / "stray.toml"))


def test_settings_are_saved_whole_and_every_role_reads_its_sections(tmp_path: Path) -> None:
    settings = load_run("addition", ["run.seed=7", "broker.lease_s=3", "pools.rollout.processes=2"])
    settings.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]
    assert saved_run(tmp_path) == settings
    sections = run_folder_settings(tmp_path)
    assert load_section(RunSection, "run", sections["run"]).seed == 7
    assert load_section(BrokerSection, "broker", sections["broker"]).lease_s == 3.0
    assert json.loads((tmp_path / "settings.json").read_text())["pools"]["rollout"]["processes"] == 2


def test_a_folder_without_settings_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"holds no settings\.json"):
        saved_run(tmp_path)


def test_defaults_alone_can_train() -> None:
    assert checked({}) == RunSettings()


def test_checking_imports_no_heavy_library() -> None:
    program = (
        "import sys; from deploy.run_check import load_run; load_run('addition'); "
        "print([m for m in ('torch', 'vllm', 'transformers', 'deepspeed', 'datasets', 'redis') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )
