"""The built-in model: a Llama of 336,512 parameters over characters, with an ordinary fast tokenizer.

For: runs on a laptop that really learn. Not for: anything larger; name a Hugging Face folder for that.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<pad>", "<s>", "</s>")
CHARACTERS = "0123456789+-*/=() ?:.,!'\nabcdefghijklmnopqrstuvwxyz"
CONTEXT = 256
"""Longest prompt and rollout together, in tokens."""
VOCABULARY = 64
"""A round number above the 54 tokens in use."""


def build(folder: Path, *, seed: int) -> None:
    """Write a complete Hugging Face folder with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=character_tokenizer(),
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<pad>",
        padding_side="left",
        model_max_length=CONTEXT,
    ).save_pretrained(folder)


def character_tokenizer() -> Tokenizer:
    """One token per character; nothing is added by itself, prompts carry `<s>`."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
