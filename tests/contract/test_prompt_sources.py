"""What every listed source keeps: random access, passes, held-out prompts never trained on; and its own errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import Misconfigured, Poison
from broker.fields import pack, unpack
from producers.prompt_sources import SOURCES, create_source, create_sources
from producers.prompt_sources.base import PromptSource, SourcePrompt
from producers.prompt_sources.reasoning_gym import plain
from producers.settings import EvalPrompts, PromptsSection

HELD_OUT = 6


def write_lines(path: Path, rows: list[Any]) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return str(path)


def sums(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"{row}+1=", "answer": row + 1, "level": row % 3} for row in range(count)]


def jsonl_options(folder: Path) -> dict[str, Any]:
    return {"path": write_lines(folder / "sums.jsonl", sums(40))}


def hf_options(folder: Path) -> dict[str, Any]:
    from datasets import Dataset, DatasetDict

    whole = Dataset.from_list(sums(40))
    DatasetDict({"train": whole, "test": Dataset.from_list(sums(46)[40:])}).save_to_disk(str(folder / "sums"))
    return {"path": str(folder / "sums")}


OPTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "addition": lambda _: {},
    "spelling": lambda _: {},
    "sentiment": lambda _: {},
    "jsonl": jsonl_options,
    "hf": hf_options,
    "reasoning_gym": lambda _: {"task": "chain_sum", "size": 50, "max_terms": 2, "max_digits": 1, "min_digits": 1},
}
"""One case for every listed source: a new one needs its own."""


@pytest.fixture(params=sorted(SOURCES))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], PromptSource]:
    options = OPTIONS[request.param](tmp_path)
    return lambda seed: create_source({"source": request.param, **options}, seed, HELD_OUT)


def test_the_same_place_gives_the_same_prompt_however_it_is_reached(make: Callable[[int], PromptSource]) -> None:
    first, second = make(0), make(0)
    places = [(0, 5), (0, 0), (0, 20)] if first.size is None else [(1, 5), (0, 0), (7, 5), (0, 20)]
    backwards = {place: second.prompt(*place) for place in reversed(places)}
    assert {place: first.prompt(*place) for place in places} == backwards


def test_another_seed_gives_other_prompts(make: Callable[[int], PromptSource]) -> None:
    one, other = ([make(seed).prompt(0, index).text for index in range(20)] for seed in (0, 1))
    assert one != other


def test_a_pass_gives_every_prompt_once_and_the_next_in_another_order(make: Callable[[int], PromptSource]) -> None:
    source = make(0)
    if source.size is None:
        assert len({source.prompt(0, index).text for index in range(200)}) > 150
        return
    passes = [[source.prompt(turn, index).text for index in range(source.size)] for turn in (0, 1, 2)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert passes[0] != passes[1] != passes[2]


def test_held_out_prompts_are_never_trained_on(make: Callable[[int], PromptSource]) -> None:
    source = make(0)
    held_out = source.held_out(HELD_OUT)
    assert len(held_out) == HELD_OUT
    trained = {source.prompt(0, index).text for index in range(source.size or 3000)}
    assert not trained & {prompt.text for prompt in held_out}


def test_another_seed_is_measured_on_the_same_prompts(make: Callable[[int], PromptSource]) -> None:
    assert make(0).held_out(HELD_OUT) == make(1).held_out(HELD_OUT)


def test_what_the_reward_may_want_travels(make: Callable[[int], PromptSource]) -> None:
    prompt = make(0).prompt(0, 3)
    assert unpack(pack(dict(prompt.meta))) == prompt.meta


def test_a_source_says_its_name(make: Callable[[int], PromptSource]) -> None:
    assert make(0).name.isidentifier()


def test_sources_load_no_model_library() -> None:
    code = (
        "import sys; from producers.prompt_sources import create_sources;"
        "from producers.settings import PromptsSection;"
        "create_sources(PromptsSection(), seed=0).at(0);"
        "print(*(name for name in ('torch', 'transformers', 'datasets', 'reasoning_gym') if name in sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.split() == []


# ---- what each of them asks


def test_a_sum_is_answered_from_the_last_digit() -> None:
    assert create_source({"source": "addition"}, 0, 0).held_out(2) == [
        SourcePrompt(text="99+56=", answer="551"),
        SourcePrompt(text="14+00=", answer="410"),
    ]


def test_small_sums_still_leave_some_to_train_on() -> None:
    source = create_source({"source": "addition", "digits": 1}, 0, 10)
    assert len(source.held_out(512)) == 10
    assert len({source.prompt(0, index).text for index in range(2000)}) == 90


def test_spelling_has_a_long_tail() -> None:
    source = create_source({"source": "spelling"}, 0, 0)
    prompts = [source.prompt(0, index) for index in range(4000)]
    lengths = sorted(len(prompt.answer) for prompt in prompts)
    assert (lengths[0], lengths[-1]) == (1, 96)
    assert lengths[2000] <= 13
    assert lengths[3800] >= 42
    letters, count = prompts[0].text.rstrip("=").split("*")
    assert prompts[0].answer == (letters * 96)[: int(count)]


def test_topics_that_are_measured_on_are_in_no_training_prompt() -> None:
    source = create_source({"source": "sentiment"}, 0, 0)
    trained = " ".join(source.prompt(0, index).text for index in range(source.size or 0))
    assert "a bridge" in source.held_out(1)[0].text
    assert "a bridge" not in trained


# ---- JSON lines


def lines(path: str, held_out: int = 0, **options: Any) -> PromptSource:
    return create_source({"source": "jsonl", "path": path, **options}, 0, held_out)


def test_a_line_s_other_fields_reach_the_reward_and_its_answer_is_text(tmp_path: Path) -> None:
    rows = [{"q": "1+1=", "a": 2, "level": {"digits": [1]}}, "", {"q": "no answer", "a": None}]
    source = lines(write_lines(tmp_path / "x.jsonl", rows), prompt_field="q", answer_field="a", template="Q: {prompt}!")
    found = sorted((source.prompt(0, index) for index in range(2)), key=lambda prompt: prompt.text)
    assert found == [
        SourcePrompt(text="Q: 1+1=!", answer="2", meta={"level": {"digits": [1]}}),
        SourcePrompt(text="Q: no answer!", answer="", meta={}),
    ]


def test_bad_lines_are_told_together_by_file_and_line_before_anything_starts(tmp_path: Path) -> None:
    rows = [*sums(2), '{"prompt": ', "", {"text": "x"}, "[1]", {"prompt": 7}, {"prompt": ""}]
    path = write_lines(tmp_path / "bad.jsonl", rows)
    mend = "no prompt of this file is used; correct or remove the line"
    with pytest.raises(Misconfigured) as told:
        lines(path)
    assert str(told.value).splitlines() == [
        f"{path}:3: no JSON (Expecting value: line 2 column 1 (char 12)); {mend}",
        f'{path}:5: no field "prompt" (found: text); {mend}',
        f'{path}:6: no field "prompt" (found: list); {mend}',
        "and 2 more lines",
    ]


def test_a_line_that_is_no_utf_8_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes('{"prompt": "ü"}\n'.encode("latin-1"))
    with pytest.raises(Misconfigured, match=r"latin\.jsonl:1: no JSON"):
        lines(str(tmp_path / "latin.jsonl"))


def test_a_file_that_changes_under_a_run_is_poison_naming_the_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", sums(3))
    source = lines(path)
    Path(path).write_text("x" * 100)
    with pytest.raises(Poison, match=r"x\.jsonl:\d: no JSON"):
        source.prompt(0, 0)


def test_an_absent_or_empty_file_is_told_with_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=f"path = {tmp_path}/none.jsonl: no such file"):
        lines(str(tmp_path / "none.jsonl"))
    with pytest.raises(Misconfigured, match="no line in it"):
        lines(write_lines(tmp_path / "empty.jsonl", [""]))


def test_a_prompt_that_stands_twice_is_kept_back_with_both(tmp_path: Path) -> None:
    source = lines(write_lines(tmp_path / "x.jsonl", [*sums(10), *sums(10)]), held_out=4)
    assert source.size == 12
    apart = {prompt.text for prompt in source.held_out(4)}
    assert len(apart) == 4
    assert not apart & {source.prompt(0, index).text for index in range(12)}


def test_the_order_of_lines_does_not_change_what_is_kept_back(tmp_path: Path) -> None:
    forth = lines(write_lines(tmp_path / "a.jsonl", sums(30)), held_out=5)
    back = lines(write_lines(tmp_path / "b.jsonl", sums(30)[::-1]), held_out=5)
    assert forth.held_out(5) == back.held_out(5)


def test_a_file_of_its_own_to_measure_on_keeps_its_prompts_out_of_training(tmp_path: Path) -> None:
    evaluation = write_lines(tmp_path / "eval.jsonl", [*sums(3), {"prompt": "other"}])
    source = lines(write_lines(tmp_path / "train.jsonl", sums(10)), eval_path=evaluation)
    assert [prompt.text for prompt in source.held_out(9)] == ["0+1=", "1+1=", "2+1=", "other"]
    assert source.size == 7


def test_a_file_that_is_all_held_out_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"of 4 rows \(2 different prompts\) none is left.*lower eval\.size"):
        lines(write_lines(tmp_path / "x.jsonl", [*sums(2), *sums(2)]), held_out=2)


def test_without_held_out_prompts_there_is_nothing_to_measure_on(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="keeps no prompts back"):
        lines(write_lines(tmp_path / "x.jsonl", sums(2))).held_out(1)


def test_a_template_without_a_place_for_the_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="every prompt would be the same"):
        lines(write_lines(tmp_path / "x.jsonl", sums(2)), template="{promt}")


# ---- data sets on disk


def test_a_split_of_its_own_to_measure_on(tmp_path: Path) -> None:
    source = create_source({"source": "hf", "eval_split": "test", **hf_options(tmp_path)}, 0, 3)
    assert source.size == 40
    assert [prompt.answer for prompt in source.held_out(3)] == ["41", "42", "43"]
    assert source.held_out(1)[0].meta == {"level": 1}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"split": "dev"}, 'has no split "dev"; nothing was started; its splits: train, test'),
        ({"prompt_field": "question"}, 'has no column "question".*prompt, answer, level'),
        ({"prompt_field": "level"}, 'row 0: "level" is .0., not a text'),
        ({"path": "/nowhere"}, "/nowhere: no such folder"),
    ],
)
def test_a_data_set_that_does_not_fit_is_told(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        create_source({"source": "hf", **hf_options(tmp_path), **options}, 0, 0)


def test_a_folder_that_is_no_data_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no saved data set"):
        create_source({"source": "hf", "path": str(tmp_path)}, 0, 0)


# ---- reasoning-gym


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"task": "chain_sums"}, "did you mean chain_sum"),
        ({"task": "chain_sum", "max_term": 3}, "max_term"),
        ({"task": "chain_sum", "max_terms": 0}, "correct its options"),
        ({}, 'needs the option "task"'),
    ],
)
def test_a_task_that_is_not_there_is_told(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        create_source({"source": "reasoning_gym", **options}, 0, 0)


def test_a_task_with_too_few_questions_is_told_when_they_are_used_up() -> None:
    few = {"task": "chain_sum", "max_terms": 2, "max_digits": 1, "min_digits": 1, "size": 5}
    source = create_source({"source": "reasoning_gym", **few}, 0, 4000)
    with pytest.raises(Misconfigured, match="too few different questions to keep 4000"):
        [source.prompt(0, index) for index in range(5)]


def test_an_entry_s_own_objects_become_text_and_its_tuples_stay_tuples() -> None:
    assert plain({"a": (1, [2.5, {"b"}]), 3: Path("x")}) == {"a": (1, [2.5, {"b"}]), 3: "x"}


# ---- all together


def test_a_run_measures_each_source_by_its_share(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", sums(40))
    settings = PromptsSection(
        source=[{"source": "addition", "weight": 3}, {"source": "jsonl", "name": "own", "path": path}],
        eval=EvalPrompts(size=12),
    )
    sources = create_sources(settings, seed=0)
    tasks = [drawn.task for drawn in sources.held_out(12)]
    assert (tasks.count("addition"), tasks.count("own")) == (9, 3)
    assert len({drawn.id for drawn in sources.held_out(12)}) == 12
    assert sources.read(400) == {"addition": 300, "own": 100}
