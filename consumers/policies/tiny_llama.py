"""The built-in model: a Llama of 336,512 parameters that reads and writes one character at a time.

For: runs that learn something on one core within two minutes, and tests. Not for: training it (`warm_start`).
Its folder is an ordinary Hugging Face folder; nothing else knows that the model is ours.
"""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PADDING, BEGIN, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
CHARACTERS = string.digits + "+-*/=() ?:.,!'\n" + string.ascii_lowercase
VOCABULARY = (PADDING, BEGIN, END, *CHARACTERS, UNKNOWN)

CONTEXT = 256
"""Longest prompt and answer together, in characters."""

SPREAD = 0.03
"""Deviation of the initial weights. With the usual 0.02 some seeds wait long for the moment in which the carries of an
addition are found, or for ever; with 0.08 all find them, but then reinforcement moves such weights too slowly."""


def build(folder: Path, *, dtype: str, seed: int) -> None:
    """Write the folder: random weights by `seed` (PyTorch's global generator is left as it was), and the tokenizer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config())
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def config() -> LlamaConfig:
    """55 of the 64 rows of the vocabulary are used; a round number is faster."""
    return LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=SPREAD,
        pad_token_id=VOCABULARY.index(PADDING),
        bos_token_id=VOCABULARY.index(BEGIN),
        eos_token_id=VOCABULARY.index(END),
    )


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per character. It adds no token of its own: a prompt that wants `<s>` in front says so."""
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PADDING,
        bos_token=BEGIN,
        eos_token=END,
        unk_token=UNKNOWN,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
