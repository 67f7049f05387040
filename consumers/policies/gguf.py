"""Weights that a Python package carries as a GGUF file, made into an ordinary Hugging Face folder.

For: `package:NAME`. Not for: finding the file (`initial_weights`), or downloading. transformers reads GGUF, but refuses
to save a model it has read so (its config still says it is quantized), so the de-quantized tensors move into a clean
model first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Say = Callable[[str], None]
"""Called with a few words before each part that takes seconds."""


def build(source: Path, folder: Path, *, dtype: str, say: Say) -> None:
    """Write config, safetensors in `dtype` and tokenizer (with its chat template) of the model in the file `source`."""
    say(f"reading the tokenizer of {source.name}")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    say(f"reading the weights of {source.name} ({source.stat().st_size >> 20} MiB; about 20 s)")
    quantized = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = copy.deepcopy(quantized.config)
    delattr(config, "quantization_config")
    clean = type(quantized)(config).to(getattr(torch, dtype))
    clean.load_state_dict(quantized.state_dict())
    clean.tie_weights()
    say(f"writing {clean.num_parameters():,} parameters in {dtype}")
    clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
