"""LoRA adapters inside a model: put in, taken out, and folded into the weights that engines load.

For: `causal_lm`. Not for: engines, which only ever see whole weights. A frozen (out, in) weight W acts as
W + (alpha/r)·B·A, with A (r, in) random and B (out, r) zero at the start. Source: Hu et al. 2021, arXiv 2106.09685.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from broker.errors import Misconfigured
from consumers.settings import Lora

ADAPTER = "default"
"""The name peft gives an adapter that is not named."""


def with_adapters(model: Any, lora: Lora, *, seed: int) -> None:
    """Put adapters into `model` and freeze the rest. Raises Misconfigured when no module bears a target's name."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules=lora.targets, lora_dropout=0.0)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model)
    except ValueError as error:
        raise Misconfigured(
            f"[train] lora.targets = {lora.targets}: {error}; nothing was started; name the model's linear layers"
        ) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if "lora_" in name:
            parameter.data = parameter.data.to(model.dtype)


def folded(tensors: Mapping[str, Tensor], lora: Lora | None) -> dict[str, Tensor]:
    """Plain names → W + (alpha/r)·B·A, computed in float32; nothing that trains is touched."""
    if lora is None:
        return dict(tensors)
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if ".lora_" in name:
            continue
        stem = name.removesuffix(".base_layer.weight")
        if stem != name:
            down, up = tensors[f"{stem}.lora_A.{ADAPTER}.weight"], tensors[f"{stem}.lora_B.{ADAPTER}.weight"]
            tensor = (tensor.float() + (lora.alpha / lora.r) * (up.float() @ down.float())).to(tensor.dtype)
        whole[name.replace(".base_layer.", ".")] = tensor
    return whole


def adapter_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if ".lora_" in name}
