"""Arguments vLLM is started with.

For: a pure function from settings to arguments, and the errors of a start. Not for: starting.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any

from vllm import EngineArgs
from vllm.config import WeightTransferConfig

from broker.errors import Misconfigured
from producers.engines.vllm_transfer import BACKEND, Registration
from producers.settings import RolloutSection, VllmOptions

CPU_CACHE_MB = 512

CPU_BLOCK = 32
"""Tokens per cache block on a CPU. vLLM's 128 wastes most of it on short rollouts, and shares no prefix below 128
tokens.
"""


def arguments(
    folder: Path, settings: RolloutSection, options: VllmOptions, *, seed: int, on_cpu: bool
) -> dict[str, Any]:
    """Ours, a person's over our defaults. Raises Misconfigured for a name vLLM does not know or that must stay as it
    is.
    """
    fixed = held(folder, seed=seed, on_cpu=on_cpu)
    check_names(options.arguments, fixed)
    return {**defaults(folder, settings, options, on_cpu=on_cpu), **options.arguments, **fixed}


def held(folder: Path, *, seed: int, on_cpu: bool) -> dict[str, Any]:
    """What the contract of engines needs: nobody may change these."""
    fixed = {
        "model": str(folder),
        "seed": seed % 2**32,
        "skip_tokenizer_init": True,  # ids in, ids out
        "generation_config": "vllm",  # a folder's own sampling defaults must not creep in
        "logprobs_mode": "processed_logprobs",  # of the distribution sampled from
        "max_logprobs": -1,  # scoring at a temperature needs the whole distribution
        "scheduling_policy": "priority",  # scoring goes before groups that wait
        "weight_transfer_config": WeightTransferConfig(backend=BACKEND),
        "worker_extension_cls": f"{Registration.__module__}.{Registration.__qualname__}",
    }
    if (
        on_cpu
    ):  # vLLM 0.32.0 dies on a context read in two parts when its group has a seed: a CPU generator cannot go back
        fixed["enable_chunked_prefill"] = False
    return fixed


def defaults(folder: Path, settings: RolloutSection, options: VllmOptions, *, on_cpu: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "dtype": dtype_of(folder),
        "max_model_len": options.max_model_len,
        "max_num_seqs": settings.max_rows,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    cache_mb = options.kv_cache_mb or (CPU_CACHE_MB if on_cpu else None)
    if cache_mb:
        chosen["kv_cache_memory_bytes"] = cache_mb << 20
    if on_cpu:
        chosen |= {"enforce_eager": True, "block_size": CPU_BLOCK}
    return chosen


def dtype_of(folder: Path) -> str:
    """What the folder's tensors are in: vLLM's `auto` would serve float32 in half of it."""
    path = folder / "config.json"
    if not path.is_file():
        raise Misconfigured(
            f"{folder} has no config.json, so it is no model; nothing was started; [model] init must name one"
        )
    config = json.loads(path.read_text())
    return config.get("dtype") or config.get("torch_dtype") or "float32"


def check_names(given: dict[str, Any], fixed: dict[str, Any]) -> None:
    known = [each.name for each in dataclasses.fields(EngineArgs)]
    for name, value in given.items():
        where = f"[rollout] options.arguments.{name} = {value!r}"
        if name in fixed:
            raise Misconfigured(f"{where}: the engine needs {fixed[name]!r}; nothing was started; leave it out")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else "vllm.EngineArgs lists what there is"
            raise Misconfigured(f"{where}: vLLM has no such argument; nothing was started; {hint}")


def misconfigured(folder: Path, error: Exception) -> Misconfigured:
    """What vLLM said at its start, as an error a person can act on."""
    return Misconfigured(
        f"vLLM did not start on {folder}: {type(error).__name__}: {error}; nothing was started; mend [rollout] options "
        "(kv_cache_mb, max_model_len, arguments) or the model folder"
    )
