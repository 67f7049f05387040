"""Text to token ids with the model folder's own tokenizer, without transformers.

For: the feeder and the warm start. Not for: decoding rollouts (the engine does that, once).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from broker.errors import Misconfigured


class Encoder:
    """Raises Misconfigured when the folder has no tokenizer or names no end token."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise Misconfigured(f"{folder} holds no tokenizer.json; nothing was started; save a fast tokenizer into the model folder")
        self.tokenizer = Tokenizer.from_file(str(path))
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.tokens: dict[str, Any] = read_json(folder / "tokenizer_config.json")
        self.generation: dict[str, Any] = read_json(folder / "generation_config.json")
        self.context = int(self.config.get("max_position_embeddings") or 1 << 30)
        self.end_tokens = end_tokens(self.config, self.generation, self.tokenizer, self.tokens)
        if not self.end_tokens:
            raise Misconfigured(f"{folder} names no end token; nothing was started; set eos_token in its tokenizer_config.json")
        self.end_token = self.end_tokens[0]
        self.begin = begin_token(self.tokenizer, self.tokens)

    def encode(self, text: str) -> NDArray[np.int32]:
        """Ids as they stand: special tokens written in the text are recognised, none are added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def context_of(self, text: str) -> NDArray[np.int32]:
        """A prompt: begin token first, where the tokenizer has one and the text does not carry it already."""
        ids = self.encode(text)
        if self.begin is None or (len(ids) and int(ids[0]) == self.begin):
            return ids
        return np.insert(ids, 0, self.begin).astype(np.int32)

    def stop_ids(self, words: list[str]) -> tuple[int, ...]:
        """End tokens and these; raises Misconfigured for a word that is not exactly one token."""
        ids = list(self.end_tokens)
        for word in words:
            found = self.encode(word)
            if len(found) != 1:
                raise Misconfigured(f'[rollout] stop: "{word}" is {len(found)} tokens; nothing was started; name single tokens only')
            ids.append(int(found[0]))
        return tuple(dict.fromkeys(ids))


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def end_tokens(config: dict[str, Any], generation: dict[str, Any], tokenizer: Tokenizer, tokens: dict[str, Any]) -> list[int]:
    """What the folder calls an end: generation config first, then config, then the tokenizer's word for it."""
    named = tokens.get("eos_token")
    word = named.get("content") if isinstance(named, dict) else named
    by_word = tokenizer.token_to_id(word) if word else None
    found: list[int] = [] if by_word is None else [by_word]
    for place in (generation.get("eos_token_id"), config.get("eos_token_id")):
        found += place if isinstance(place, list) else [] if place is None else [place]
    return list(dict.fromkeys(int(one) for one in found))


def begin_token(tokenizer: Tokenizer, tokens: dict[str, Any]) -> int | None:
    """The begin token, for tokenizers that put one in front of plain text, and for character models that need one."""
    named = tokens.get("bos_token")
    word = named.get("content") if isinstance(named, dict) else named
    puts_it = tokenizer.encode("a").ids[:1] == [tokenizer.token_to_id(word)] if word else False
    return tokenizer.token_to_id(word) if word and (puts_it or word == "<s>") else None
