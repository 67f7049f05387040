"""A DeepSpeed engine around a module: made without a compiler, its weights read and replaced whatever the ZeRO stage.

For: all that is particular to DeepSpeed 0.19.8. Not for: what is trained. At start DeepSpeed would compile a
shared-memory operator for CPUs; the table that says so is private, as are its process groups, so the version is pinned.
AdamW is torch's, which needs no operator.

Source: Rajbhandari et al. 2020, arXiv 1910.02054 (ZeRO).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from broker.errors import Broken
from consumers.settings import TrainSection

BY_ENGINE = ("setuptools", "deepspeed.comm.mori", "deepspeed.module_inject.auto_ep_layer")
STATE = "state"
"""Tag of a checkpoint inside its folder."""


def engine_of(module: nn.Module, settings: TrainSection, *, device: torch.device) -> Any:
    """torch.distributed must be up. Gradients of the passes of a step are summed, over ranks they are averaged."""
    deepspeed = ready(device)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.grad_clip,
        "steps_per_print": None,
        "zero_optimization": {"stage": settings.zero_stage},
        "zero_allow_untested_optimizer": True,
    }
    halves = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    if (half := halves.get(trained[0].dtype)) is not None:
        config[half] = {"enabled": True}
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    return engine


def imported(kind: str) -> Any:
    """DeepSpeed for devices of this kind, `cpu` or `cuda`: it settles on one when it is imported."""
    os.environ.setdefault("DS_ACCELERATOR", kind)
    import deepspeed

    return deepspeed


def preload(kind: str) -> None:
    """Import DeepSpeed, and what it imports when an engine is made."""
    imported(kind)
    for module in BY_ENGINE:
        import_module(module)


def ready(device: torch.device) -> Any:
    """DeepSpeed, with torch.distributed up."""
    os.environ.setdefault("LOCAL_RANK", str(device.index or 0))
    deepspeed = imported(device.type)
    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    forget_ended_groups()
    deepspeed.init_distributed(dist_backend="gloo" if device.type == "cpu" else "nccl", verbose=False)
    return deepspeed


def forget_ended_groups() -> None:
    """DeepSpeed keeps its clone of the world for good; whoever else used torch.distributed in this process, such as an
    engine, may have ended that world since.
    """
    from deepspeed.utils import groups

    kept = vars(groups)["_WORLD_GROUP"]
    try:
        if kept is not None:
            dist.get_process_group_ranks(kept)
    except KeyError:
        vars(groups)["_release_process_group_references"]()


def whole_tensors(module: nn.Module, *, stage: int, wanted: bool) -> dict[str, Tensor] | None:
    """Parameters by name as they are; under ZeRO 3 gathered one by one, on all ranks together, kept where `wanted`."""
    if stage < 3:
        return dict(module.named_parameters())
    import deepspeed

    kept: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=None):
            if wanted:
                kept[name] = parameter.detach().cpu().clone()
    return kept if wanted else None


def replace_tensors(engine: Any, tensors: Mapping[str, Tensor], *, stage: int) -> None:
    """Overwrite parameters, and the optimizer's own copies of them; its moments stay."""
    parameters = dict(engine.module.named_parameters())
    with torch.no_grad():
        for name, tensor in tensors.items():
            if stage < 3:
                parameters[name].copy_(tensor)
                continue
            import deepspeed

            with deepspeed.zero.GatheredParameters([parameters[name]], modifier_rank=0):
                parameters[name].copy_(tensor)
    if hasattr(engine.optimizer, "refresh_fp32_params"):
        engine.optimizer.refresh_fp32_params()


def finish(engine: Any) -> float:
    """The optimizer step after the last backward; returns the L2 norm of the whole gradient before clipping."""
    plain = isinstance(engine.optimizer, torch.optim.Optimizer)
    gradients = [parameter.grad for parameter in engine.module.parameters() if plain and parameter.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    engine.step()
    return norm if plain else float(engine.get_global_grad_norm())


def save(engine: Any, folder: str, client: dict[str, Any]) -> None:
    engine.save_checkpoint(folder, tag=STATE, client_state=client, save_latest=False)


def load(engine: Any, folder: str) -> dict[str, Any]:
    """The client state. Raises Broken when the folder holds no checkpoint of this engine."""
    found, client = engine.load_checkpoint(folder, tag=STATE)
    if found is None:
        raise Broken(f"{folder} holds no DeepSpeed checkpoint; stopping; delete it to start from the one before")
    return client
