"""A model's tensors on their way into a file: put aside, so that training can go on, and written.

For: policies of models. Not for: which tensors, or under which names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn


def buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers, which belong to a checkpoint as parameters do."""
    names = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in names)


def aside(tensors: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The same tensors, those that are trained in `module` copied to the host's memory."""
    trained = {each.data_ptr() for each in module.parameters() if each.requires_grad}
    return {
        name: tensor.to("cpu", copy=True) if tensor.data_ptr() in trained else tensor
        for name, tensor in tensors.items()
    }


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path, {"format": "pt"})
