"""The policy adapter of token models: any causal language model transformers can load, whole or with LoRA.

For: log-probs of continuations, and the weights under the names engines load. Not for: optimizing or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from broker.messages import Actions
from consumers.settings import Lora

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ActionLogprobs(nn.Module):
    """What DeepSpeed wraps: ids in, log-probs of chosen positions out; only those positions meet the vocabulary."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, rows: Tensor, columns: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
        """(R, T) ids, right-padded, (N,) rows and columns of the positions that predict, (N,) targets → (N,) log-probs."""
        hidden = self.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        logits = self.model.get_output_embeddings()(hidden[rows, columns]).float() / temperatures[:, None]
        return torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]


class CausalLm:
    """See `consumers.policies.base.Policy`."""

    def __init__(self, folder: Path, *, dtype: str, lora: Lora | None, device: str = "cpu") -> None:
        self.folder = folder
        self.device = device
        self.causal: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).to(device)
        self.adapted: Any = with_lora(self.causal, lora) if lora else None
        self.module = ActionLogprobs(self.causal)

    def logprobs(
        self, module: nn.Module, contexts: Sequence[Actions], continuations: Sequence[Actions], temperatures: Sequence[float]
    ) -> Tensor:
        batch = padded(contexts, continuations, temperatures)
        return module(*(tensor.to(self.device) for tensor in batch))

    def export(self, folder: Path, tensors: dict[str, Tensor] | None = None) -> None:
        found = tensors if tensors is not None else self.tensors()
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in found.items()}, folder / "model.safetensors", {"format": "pt"})

    def tensors(self) -> dict[str, Tensor]:
        """Full weights by their Hugging Face names; adapters are added to a copy, so training is not disturbed."""
        merged: dict[str, Tensor] = {}
        for name, module in self.causal.named_modules():
            if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
                merged[f"{name}.weight"] = module.base_layer.weight + module.get_delta_weight("default").to(module.base_layer.weight.dtype)
        plain = {name: tensor for name, tensor in self.causal.state_dict().items() if "lora_" not in name}
        renamed = {name.replace(".base_layer.", "."): tensor for name, tensor in plain.items()} | merged
        if self.causal.config.tie_word_embeddings:
            renamed.pop("lm_head.weight", None)
        return renamed

    def load(self, folder: Path) -> None:
        """Take the tensors of a published version (full training only)."""
        from safetensors.torch import load_file

        if self.adapted is not None:
            raise ValueError("a published version holds merged weights, from which adapters cannot be taken back")
        self.causal.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        self.causal.tie_weights()

    def save_pretrained(self, folder: Path) -> None:
        """Config, tokenizer and merged weights, as `from_pretrained` opens them."""
        from transformers import AutoTokenizer

        folder.mkdir(parents=True, exist_ok=True)
        self.causal.config.save_pretrained(folder)
        AutoTokenizer.from_pretrained(self.folder).save_pretrained(folder)
        self.export(folder)


def with_lora(model: Any, lora: Lora) -> Any:
    """Adapters injected into `model` in place; only they train."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules=lora.targets, lora_dropout=0.0, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(model.dtype)
    return adapted


def padded(
    contexts: Sequence[Actions], continuations: Sequence[Actions], temperatures: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Right-padded ids and, flat over all continuations, which positions predict which targets at which temperature.

    Padding on the right needs no mask: causal attention never looks there, and nothing there is asked for.
    """
    lengths = [len(context) + len(continuation) for context, continuation in zip(contexts, continuations, strict=True)]
    ids = np.zeros((len(lengths), max(lengths, default=1)), np.int64)
    rows, columns, heat = [], [], []
    for row, (context, continuation) in enumerate(zip(contexts, continuations, strict=True)):
        ids[row, : len(context)] = context
        ids[row, len(context) : lengths[row]] = continuation
        rows.append(np.full(len(continuation), row))
        columns.append(np.arange(len(context) - 1, lengths[row] - 1))
        heat.append(np.full(len(continuation), temperatures[row] or 1.0, np.float32))
    targets = np.concatenate([*continuations, np.zeros(0, np.int32)]).astype(np.int64)
    flat = [torch.from_numpy(np.concatenate(parts)) for parts in (rows, columns)]
    return torch.from_numpy(ids), flat[0], flat[1], torch.from_numpy(targets), torch.from_numpy(np.concatenate(heat))
