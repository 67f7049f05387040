"""Text to token ids with the model folder's own tokenizer, without transformers.

For: the feeder and the warm start. Not for: decoding rollouts (the engine does that, once).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from broker.errors import Misconfigured

Json = dict[str, Any]


class Encoder:
    """Raises Misconfigured when the folder is no model's, has no tokenizer, or names no end token.

    >>> encoder = Encoder(Path("runs/latest/model"))
    >>> encoder.context_of("12+34=")                       # begin token first, where the model wants one
    array([ 1,  4,  5, 13,  6,  7, 17], dtype=int32)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = read_tokenizer(folder)
        config = read_json(folder / "config.json")
        words = read_json(folder / "tokenizer_config.json")
        generation = read_json(folder / "generation_config.json")
        self.context = context_length(config)
        """Most tokens of a prompt and its rollout together; None when the folder does not say."""
        self.begin = begin_token(self.tokenizer, words)
        self.unknown = unknown_token(self.tokenizer)
        self.end_tokens = end_tokens(self.tokenizer, words, [generation, config])
        if not self.end_tokens:
            raise Misconfigured(
                f"{folder} names no end token, so no rollout would ever stop by itself; nothing was started; set "
                "eos_token in its tokenizer_config.json"
            )
        self.end_token = self.end_tokens[0]

    def encode(self, text: str) -> NDArray[np.int32]:
        """Ids as they stand: special tokens written in the text are recognised, none are added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def context_of(self, text: str) -> NDArray[np.int32]:
        """A prompt: begin token first, where the model wants one and the text does not carry it already."""
        ids = self.encode(text)
        if self.begin is None or ids[:1].tolist() == [self.begin]:
            return ids
        return np.concatenate((np.asarray([self.begin], np.int32), ids))

    def stop_ids(self, words: Iterable[str]) -> tuple[int, ...]:
        """End tokens and these; raises Misconfigured for a word that is not exactly one token."""
        ids = list(self.end_tokens)
        for word in words:
            found = self.encode(word).tolist()
            if len(found) != 1 or found[0] == self.unknown:
                what = f"{len(found)} tokens" if len(found) != 1 else "unknown to the tokenizer"
                raise Misconfigured(
                    f'[rollout] stop: "{word}" is {what}; nothing was started; name single tokens of {self.folder} only'
                )
            ids += found
        return tuple(dict.fromkeys(ids))

    def unreadable(self, text: str) -> str:
        """The part of the text the tokenizer has no token for; empty when it reads all of it."""
        if self.unknown is None:
            return ""
        found = self.tokenizer.encode(text, add_special_tokens=False)
        lost = [
            text[begin:end] for one, (begin, end) in zip(found.ids, found.offsets, strict=True) if one == self.unknown
        ]
        return "".join(dict.fromkeys(lost))


def read_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    mend = "save a fast tokenizer into the model folder (tokenizer.save_pretrained(folder))"
    if not path.is_file():
        raise Misconfigured(
            f"{folder} holds no tokenizer.json, so prompts cannot be encoded; nothing was started; {mend}"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise Misconfigured(f"{path} is no tokenizer ({error}); nothing was started; {mend}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read_json(path: Path) -> Json:
    """An absent file says nothing. Raises Misconfigured for one that is no JSON object."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise Misconfigured(f"{path} is no JSON ({error}); nothing was started; save the model folder again") from error
    if not isinstance(value, dict):
        raise Misconfigured(f"{path} holds no JSON object; nothing was started; save the model folder again")
    return value


def context_length(config: Json) -> int | None:
    """What families call it; composite models keep it with their text part."""
    for place in (config, config.get("text_config") or {}):
        for key in ("max_position_embeddings", "n_positions", "max_seq_len"):
            if place.get(key):
                return int(place[key])
    return None


def end_tokens(tokenizer: Tokenizer, words: Json, configs: Sequence[Json]) -> list[int]:
    """Whatever the folder calls an end: the tokenizer's own word for it first, then generation config, then config."""
    by_word = id_of(tokenizer, words.get("eos_token"))
    found = [] if by_word is None else [by_word]
    for config in configs:
        named = config.get("eos_token_id")
        found += named if isinstance(named, list) else [] if named is None else [named]
    return list(dict.fromkeys(map(int, found)))


def begin_token(tokenizer: Tokenizer, words: Json) -> int | None:
    """The begin token, if the model expects it in front of a prompt.

    It does when the tokenizer itself puts it there, when its config says `add_bos_token`, and when it is called `<s>`:
    models with that name for it have seen it in front of everything (GPT-like ones, with an `<|endoftext|>`, have not).
    """
    begin = id_of(tokenizer, words.get("bos_token"))
    wanted = words.get("add_bos_token")
    if begin is None or wanted is False:
        return None
    puts_it = tokenizer.encode("a").ids[:1] == [begin]
    return begin if wanted or puts_it or tokenizer.id_to_token(begin) == "<s>" else None


def unknown_token(tokenizer: Tokenizer) -> int | None:
    word = getattr(tokenizer.model, "unk_token", None)
    return tokenizer.token_to_id(word) if word else None


def id_of(tokenizer: Tokenizer, named: Any) -> int | None:
    """Id of a special token as configs name it: a word, or an object with its `content`."""
    word = named.get("content") if isinstance(named, dict) else named
    return tokenizer.token_to_id(word) if word else None
