"""A model folder without weights: one token per character, as much of it as a feeder reads."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

WORDS = ("<pad>", "<s>", "</s>", "<unk>", *string.digits, *string.ascii_lowercase, *"+*= \n")


def save(folder: Path, *, context: int = 64, config: dict[str, Any] | None = None, **words: Any) -> Path:
    """Write it; `config` is added to config.json, `words` to tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    whole = {"max_position_embeddings": context, "eos_token_id": WORDS.index("</s>"), **(config or {})}
    (folder / "config.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", **words}))
    return folder


def ids(text: str) -> list[int]:
    return [WORDS.index(letter) for letter in text]
