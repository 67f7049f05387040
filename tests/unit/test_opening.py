"""What a run file names is opened before anything starts: a rule that cannot be called and a file without prompts are
told at once, and nobody waits long for a slow one.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.errors import Misconfigured
from consumers.settings import RewardSection
from deploy.opening import open_options, open_prompts, open_rules
from deploy.run_check import load_run
from deploy.run_files import shipped_runs
from deploy.run_settings import RunSettings

RULES = """
import os, sys, time
def good(*, prompt, completion, answer, meta, scale=1.0):
    raise RuntimeError("nobody calls it")
def other(prompt, reply):
    return 1.0
"""


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of somebody's own, which this process can find and never imports."""
    (tmp_path / "opened_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def rules(*names: str, **options: object) -> RewardSection:
    return RewardSection.model_validate({"parts": [{"name": name, "options": options} for name in names]})


def test_rules_that_can_be_made_open_and_none_is_called() -> None:
    assert open_rules(rules("opened_rules:good", scale=2.0), 20.0)
    assert open_rules(rules("exact_match"), 20.0)


def test_where_judges_alone_score_there_is_no_rule_to_open() -> None:
    assert open_rules(rules("scripted_judge"), 0.0)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("opened_rules:other", {}, r"other: TypeError: missing a required argument: 'reply'; it is called as rule\("),
        ("opened_rules:good", {"scales": 2}, "good: TypeError: got an unexpected keyword argument 'scales'"),
        ("opened_rules:gone", {}, "gone: AttributeError: module 'opened_rules' has no attribute 'gone'"),
        ("length", {"aim": 4}, "length: TypeError: .*aim"),
    ],
)
def test_one_that_cannot_be_made_is_refused_in_the_words_of_the_process_that_would_score(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        open_rules(rules(name, **options), 20.0)


def test_a_module_that_ends_its_process_is_no_reason_to_try_again(beside: Path) -> None:
    (beside / "opened_exit.py").write_text("import os\nos._exit(3)\n")
    with pytest.raises(Misconfigured, match=r"imports rule ended without a word; nothing was started; .* may end"):
        open_rules(rules("opened_exit:rule"), 20.0)


def test_nobody_waits_longer_than_he_said_for_a_slow_module(beside: Path) -> None:
    (beside / "opened_slow.py").write_text("import time\ntime.sleep(60)\n")
    began = time.monotonic()
    assert not open_rules(rules("opened_slow:rule"), 0.5)
    assert time.monotonic() - began < 20


def settings(path: Path, held_out: int = 0) -> RunSettings:
    options = {"path": str(path), "template": "Q: {prompt}\nA:"}
    return RunSettings.model_validate(
        {"prompts": {"source": "jsonl", "options": options, "eval": {"size": held_out}}, "run": {"seed": 1}}
    )


def test_the_first_prompt_is_shown_as_the_model_will_see_it(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "1+1=\\u001b[2J", "answer": 2}\n{"prompt": "1+1=\\u001b[2J", "answer": 2}\n')
    said = open_prompts(settings(path))
    assert said == "prompts: jsonl begins with 'Q: 1+1=\\x1b[2J\\nA:', answer '2'; 0 held out"
    path.write_text('{"prompt": "%s"}\n' % ("long " * 40))
    assert "…" in open_prompts(settings(path))
    assert open_prompts(settings(path)).endswith("long \\nA:'; 0 held out")


@pytest.mark.parametrize(
    ("lines", "held_out", "said"),
    [
        ("", 0, "no line in it; nothing was started; name a file with data"),
        ("\n \n", 0, "no line in it; nothing was started; name a file with data"),
        ('{"prompt": "1+1="}\n', 1, "of 1 rows .* none is left to train on when 1 prompts are held out"),
        ('{"query": "1+1="}\n', 0, r'data.jsonl:1: no field "prompt" \(found: query\)'),
    ],
)
def test_a_file_without_prompts_is_refused_with_the_mend(tmp_path: Path, lines: str, held_out: int, said: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(lines)
    with pytest.raises(Misconfigured, match=said):
        open_prompts(settings(path, held_out))


def test_all_options_of_shipped_parts_that_are_unknown_are_told_together() -> None:
    wrong = ("rollout.engine=torch", "rollout.options={cash_mb=1}", "train.options={policies=1}")
    with pytest.raises(Misconfigured) as caught:
        open_options(load_run("addition", [*wrong, "algorithm.name=dapo", "algorithm.options={clip_high=-1}"]))
    first, second, third = str(caught.value).splitlines()
    assert first == '[rollout.options] cash_mb: unknown key; nothing was started; did you mean "cache_mb"?'
    assert second.startswith("[algorithm.options] clip_high = -1: Input should be greater than 0; nothing was started")
    assert third == '[train.options] policies: unknown key; nothing was started; did you mean "policy"?'


def test_options_of_ones_own_parts_are_their_own_matter_and_shipped_runs_are_sound() -> None:
    open_options(load_run("addition", ["train.learner=json:loads", "train.options={whatever=1}"]))
    for name in shipped_runs():
        open_options(load_run(name))
