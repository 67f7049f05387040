"""Engine `vllm`: vLLM inside this process on a CPU, in a process of its own on a GPU.

For: options, the environment vLLM reads when it is imported, and the choice between the two ways. Not for: sampling
(`vllm_core`, `vllm_async`), what is asked of vLLM (`vllm_requests`), how weights get in (`vllm_transfer`).

On a CPU vLLM's own processes cost a start of half a minute and a gigabyte and bring nothing; on a GPU they keep Python
off the device's back.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from broker.errors import Misconfigured
from broker.settings import load_section
from producers.settings import RolloutSection, VllmOptions

if TYPE_CHECKING:
    from producers.engines.vllm_async import VllmAsync
    from producers.engines.vllm_core import VllmCore

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a model is a folder here; without this a wrong path asks the network for a minute
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

COLDEST = 0.01
"""vLLM samples at this temperature when asked for one between it and 0."""

CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",  # small models gain nothing from a compiler that runs for 17 s in the first step
}


def make(model_folder: Path, settings: RolloutSection, *, seed: int) -> VllmCore | VllmAsync:
    """An `EngineCore` on a CPU, an `Engine` on a GPU. Raises Misconfigured."""
    options = load_section(VllmOptions, "rollout.options", settings.options)
    check_temperature(settings.temperature)
    engine, on_cpu = preload()
    return engine(model_folder, settings, options, seed=seed, on_cpu=on_cpu)


def preload() -> tuple[type[VllmCore | VllmAsync], bool]:
    """Import vLLM; answers the class for this machine and whether it is a CPU's. Raises Misconfigured without vLLM."""
    on_cpu = not torch.cuda.is_available()
    prepare_environment(on_cpu=on_cpu)
    try:
        import_module("vllm")
    except ImportError as error:
        raise Misconfigured(
            f'[rollout] engine = "vllm", but vllm cannot be imported ({error}); nothing was started; install with '
            'deploy/setup.sh without VLLM=0, or use engine = "torch"'
        ) from error
    if on_cpu:
        from producers.engines.vllm_core import VllmCore as Chosen
    else:
        from producers.engines.vllm_async import VllmAsync as Chosen
    return Chosen, on_cpu


def check_temperature(temperature: float) -> None:
    if temperature < COLDEST:
        raise Misconfigured(
            f"[rollout] temperature = {temperature:g}: vLLM samples at {COLDEST:g} or above, so what it records would "
            "not be what was asked; nothing was started; raise the temperature"
        )


def prepare_environment(*, on_cpu: bool) -> None:
    """Must come before the first import of vllm in this process; what a person has set stays, but for the last two."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if on_cpu:
        os.environ.update(CPU_ENVIRONMENT)
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would silently win over `kv_cache_mb`
