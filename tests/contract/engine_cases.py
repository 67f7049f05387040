"""Engines under test, each on a tiny model with three different sets of weights, and what their log-probs must be."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from broker.messages import Group, Prompt
from producers.engines import ENGINES
from producers.settings import RolloutSection

VOCABULARY = 64
LONGEST = 160
VERSIONS = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """One engine on one kind of model."""

    engine: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join(
            [self.engine, self.model, *(str(each) for each in self.options.values() if isinstance(each, str))]
        )


DEFAULT = ("llama-tied", "llama-untied")
"""What an engine is tested on unless it is listed below: being registered is being tested."""

CASES = {
    "torch": [
        *(Case("torch", model) for model in ("llama-tied", "llama-untied", "qwen3-tied", "gpt2")),
        Case("torch", "llama-untied", {"forward": "transformers"}),
    ],
    "scripted": [Case("scripted", "scripted", {"pace_s": 0.01, "beats": 5})],
}

NEEDS = {"vllm": "vllm"}
"""Python module an engine cannot do without and a machine may."""


def all_cases() -> Iterator[Case]:
    for engine in ENGINES:
        if engine not in NEEDS or importlib.util.find_spec(NEEDS[engine]):
            yield from CASES.get(engine, [Case(engine, model) for model in DEFAULT])


def llama(tied: bool) -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=LONGEST,
            tie_word_embeddings=tied,
            initializer_range=0.15,
        )
    )


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=LONGEST,
            tie_word_embeddings=True,
            initializer_range=0.15,
        )
    )


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=LONGEST, n_embd=64, n_layer=2, n_head=2, initializer_range=0.15,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama-tied": lambda: llama(tied=True),
    "llama-untied": lambda: llama(tied=False),
    "qwen3-tied": qwen3,
    "gpt2": gpt2,
}


def publish(model: str, version: int, folder: Path) -> None:
    """Weights of `version`: nothing like those of another."""
    if model == "scripted":
        save_file({"weights": np.array([version], np.float32)}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": LONGEST}))
    else:
        torch.manual_seed(version)
        MODELS[model]().save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({chr(48 + number): number for number in range(VOCABULARY)}, unk_token="0"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


@dataclass(frozen=True)
class Weights:
    """Published weights, and what they say of a rollout."""

    folder: Path
    scripted: bool

    def logprobs(self, context: Sequence[int], actions: Sequence[int], temperature: float) -> NDArray[np.float32]:
        """(n,) from a transformers forward pass over the whole sequence (0 counts as temperature 1)."""
        if self.scripted:
            return self.by_formula(actions)
        ids = torch.tensor([[*context, *actions]])
        with torch.inference_mode():
            logits = opened(self.folder)(input_ids=ids).logits[0, len(context) - 1 : -1]
        tempered = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
        return tempered[torch.arange(len(actions)), torch.tensor(list(actions))].numpy()

    def by_formula(self, actions: Sequence[int]) -> NDArray[np.float32]:
        weights = int(self.folder.name)
        return np.array([-(1 + ((7 * a + 13 * i + 31 * weights) % 97) / 97) for i, a in enumerate(actions)], np.float32)

    def likeliest(self, context: Sequence[int]) -> int:
        with torch.inference_mode():
            return int(opened(self.folder)(input_ids=torch.tensor([list(context)])).logits[0, -1].argmax())


@cache
def opened(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def settings(case: Case, **options: Any) -> RolloutSection:
    return RolloutSection(engine=case.engine, group_size=4, max_rows=16, options={**case.options, **options})


def group(
    index: int, *, length: int = 5, size: int = 4, most: int = 12, temperature: float = 1.0, stop: tuple[int, ...] = ()
) -> Group:
    """A group whose prompt and seed follow from its index."""
    actions = np.random.default_rng(index).integers(3, VOCABULARY, length).astype(np.int32)
    prompt = Prompt(
        text="",
        actions=actions,
        size=size,
        seed=1000 + index,
        temperature=temperature,
        max_actions=most,
        stop=stop,
        answer="5",
    )
    return Group(id=f"test/0/{index}", kind="train", prompt=prompt)
