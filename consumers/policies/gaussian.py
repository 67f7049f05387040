"""A policy whose actions are vectors: each drawn from a normal distribution around what a small network says.

For: continuous actions, and proof that nothing beyond a policy knows tokens. Not for: language.

C numbers of a context · D of an action. The mean of an action depends on the context and on the action before it; the
spread is learnt, one number per dimension. Temperature T scales the variance: density^(1/T), normalized.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from broker.errors import Misconfigured
from broker.messages import Actions
from consumers.settings import Lora

CONFIG = "config.json"
TENSORS = "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    context: int
    """C"""
    action: int
    """D"""
    hidden: int = 32


class Normal(nn.Module):
    """(n, C) contexts, (n, D) previous actions, (n, D) actions, (n,) temperatures → (n,) log-densities."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.mean = nn.Sequential(
            nn.Linear(sizes.context + sizes.action, sizes.hidden), nn.Tanh(), nn.Linear(sizes.hidden, sizes.action)
        )
        self.log_spread = nn.Parameter(torch.zeros(sizes.action))

    def forward(self, contexts: Tensor, previous: Tensor, actions: Tensor, temperatures: Tensor) -> Tensor:
        mean = self.mean(torch.cat([contexts, previous], dim=-1))
        log_spread = self.log_spread + 0.5 * temperatures.log()[:, None]
        distance = (actions - mean) / log_spread.exp()
        return -(0.5 * distance.square() + log_spread + 0.5 * math.log(2 * math.pi)).sum(-1)


class Gaussian:
    """See `base.Policy`. A folder holds `config.json` (the sizes) and `model.safetensors`."""

    quadratic = 0.0

    def __init__(
        self, folder: Path, *, dtype: str = "float32", lora: Lora | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        """Raises Misconfigured for LoRA, which this network is too small for."""
        if lora is not None:
            raise Misconfigured("[train] lora: a gaussian policy has no adapters; nothing was started; remove lora")
        self.device = torch.device(device)
        self.sizes = Sizes(**json.loads((folder / CONFIG).read_text())["sizes"])
        self.module = Normal(self.sizes).to(self.device, getattr(torch, dtype))
        self.module.load_state_dict(self.published(folder))

    def logprobs(
        self,
        module: nn.Module,
        contexts: Sequence[Actions],
        continuations: Sequence[Actions],
        temperatures: Sequence[float],
    ) -> Tensor:
        lengths = [len(each) for each in continuations]
        start = np.zeros((1, self.sizes.action), np.float32)
        inputs = (
            torch.from_numpy(
                np.repeat(np.stack([each.reshape(-1, self.sizes.context)[-1] for each in contexts]), lengths, 0)
            ),
            torch.from_numpy(np.concatenate([np.concatenate([start, each])[: len(each)] for each in continuations])),
            torch.from_numpy(np.concatenate(continuations)),
            torch.tensor([each or 1.0 for each in temperatures]).repeat_interleave(torch.tensor(lengths)),
        )
        return module(*(each.to(self.device, self.module.log_spread.dtype) for each in inputs)).float()

    def export(self, tensors: Mapping[str, Tensor] | None = None) -> Callable[[Path], None]:
        own = dict(self.module.named_parameters()) if tensors is None else tensors
        copied = {name: tensor.detach().cpu().clone() for name, tensor in own.items()}
        return lambda folder: save_file(copied, folder / TENSORS)

    def published(self, folder: Path) -> dict[str, Tensor]:
        return load_file(folder / TENSORS)

    def save_pretrained(self, folder: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
        write_config(folder, self.sizes)
        self.export(tensors)(folder)


def write_config(folder: Path, sizes: Sizes) -> None:
    content = {"sizes": {"context": sizes.context, "action": sizes.action, "hidden": sizes.hidden}}
    (folder / CONFIG).write_text(json.dumps(content))


def build(folder: Path, sizes: Sizes, *, seed: int) -> None:
    """Write a folder with random weights by `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = Normal(sizes)
    write_config(folder, sizes)
    save_file({name: tensor.detach() for name, tensor in module.named_parameters()}, folder / TENSORS)
