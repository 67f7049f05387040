"""Prompts are encoded as the model folder says, and what it cannot say is told before a run begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from broker.errors import Misconfigured
from producers.encoding import Encoder
from tests import character_model
from tests.character_model import WORDS, ids

BEGIN, END = WORDS.index("<s>"), WORDS.index("</s>")


def test_a_prompt_begins_with_the_begin_token_once(tmp_path: Path) -> None:
    encoder = Encoder(character_model.save(tmp_path))
    assert encoder.context_of("1+2=").tolist() == [BEGIN, *ids("1+2=")]
    assert encoder.context_of("<s>1+2=").tolist() == [BEGIN, *ids("1+2=")]
    assert encoder.encode("1+2=").tolist() == ids("1+2=")


def test_a_folder_that_wants_no_begin_token_gets_none(tmp_path: Path) -> None:
    encoder = Encoder(character_model.save(tmp_path, add_bos_token=False))
    assert encoder.context_of("12").tolist() == ids("12")


def test_a_begin_token_of_another_name_is_added_when_the_tokenizer_itself_adds_it(tmp_path: Path) -> None:
    folder = character_model.save(tmp_path, bos_token="<pad>")
    assert Encoder(folder).context_of("12").tolist() == ids("12")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert Encoder(folder).context_of("12").tolist() == [0, *ids("12")]
    assert Encoder(folder).encode("12").tolist() == ids("12")


def test_padding_and_truncation_left_in_a_tokenizer_file_change_no_prompt(tmp_path: Path) -> None:
    folder = character_model.save(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert Encoder(folder).encode("1+2=").tolist() == ids("1+2=")


def test_every_end_the_folder_names_stops_a_rollout_and_so_do_the_run_s_own(tmp_path: Path) -> None:
    folder = character_model.save(tmp_path, eos_token={"content": "</s>"}, config={"eos_token_id": [END, 0]})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    encoder = Encoder(folder)
    assert encoder.end_token == END
    assert encoder.stop_ids(["\n", "+", "+"]) == (END, 7, 0, *ids("\n+"))


@pytest.mark.parametrize(("word", "problem"), [("12", "2 tokens"), ("", "0 tokens"), ("Ü", "unknown to the tokenizer")])
def test_a_stop_word_that_is_no_single_token_is_refused(tmp_path: Path, word: str, problem: str) -> None:
    with pytest.raises(Misconfigured, match=f'stop: "{word}" is {problem}'):
        Encoder(character_model.save(tmp_path)).stop_ids([word])


def test_letters_without_a_token_are_named(tmp_path: Path) -> None:
    encoder = Encoder(character_model.save(tmp_path))
    assert encoder.unreadable("12+34=") == ""
    assert encoder.unreadable("Über 1 Ödem") == "ÜÖ"


@pytest.mark.parametrize(
    ("config", "context"),
    [({}, 64), ({"max_position_embeddings": None, "n_positions": 99}, 99), ({"max_position_embeddings": 0}, None)],
)
def test_the_context_is_what_the_folder_says(tmp_path: Path, config: dict[str, object], context: int | None) -> None:
    assert Encoder(character_model.save(tmp_path, config=config)).context == context


def test_a_composite_model_keeps_its_context_with_its_text_part(tmp_path: Path) -> None:
    config = {"max_position_embeddings": None, "text_config": {"max_position_embeddings": 77}}
    assert Encoder(character_model.save(tmp_path, config=config)).context == 77


def test_a_folder_without_tokenizer_is_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"holds no tokenizer\.json.*save a fast tokenizer"):
        Encoder(tmp_path)


def test_a_tokenizer_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Misconfigured, match="is no tokenizer"):
        Encoder(tmp_path)


def test_a_config_that_does_not_parse_is_refused(tmp_path: Path) -> None:
    (character_model.save(tmp_path) / "config.json").write_text("{")
    with pytest.raises(Misconfigured, match=r"config\.json is no JSON"):
        Encoder(tmp_path)


def test_a_folder_that_names_no_end_token_is_refused(tmp_path: Path) -> None:
    folder = character_model.save(tmp_path, eos_token=None, config={"eos_token_id": None})
    with pytest.raises(Misconfigured, match="names no end token"):
        Encoder(folder)
