"""What the choice of an engine depends on, looked up on this machine.

For: `choice.Facts`. Not for: deciding anything.
"""

from __future__ import annotations

import json
import math
import struct
from importlib.util import find_spec
from pathlib import Path

from broker.errors import Misconfigured
from producers.engines.choice import Facts


def look(model_folder: Path) -> Facts:
    """Facts about this model and this process. Raises Misconfigured when the folder holds no safetensors."""
    import torch

    return Facts(
        parameters=parameters(model_folder), gpus=torch.cuda.device_count(), has_vllm=find_spec("vllm") is not None
    )


def parameters(model_folder: Path) -> int:
    """Numbers in all safetensors files of the folder, read from their headers."""
    files = sorted(model_folder.glob("*.safetensors"))
    if not files:
        raise Misconfigured(
            f"{model_folder} holds no safetensors; nothing was started; [model] init must name a model folder"
        )
    return sum(numbers(path) for path in files)


def numbers(path: Path) -> int:
    """The header is its length in 8 bytes, then JSON: name → dtype, shape, place."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
