"""Weights from a file into a running vLLM: a backend of its weight transfer.

For: what happens in each of vLLM's workers between the start and the end of an update. Not for: when (`vllm_core`,
`vllm_async`), nor which file is good (`vllm_checkpoint`). Importing this module registers the backend; vLLM imports it
in each worker because `Registration` is named as the worker's extension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from producers.engines import vllm_tied_head

BACKEND = "tidemill_file"


@dataclass
class NoInfo(WeightTransferInitInfo):
    """A file needs no connection."""


@dataclass
class FileInfo(WeightTransferUpdateInfo):
    path: str
    """A safetensors file with all tensors of the model, under the names of its Hugging Face folder."""


class FileTransfer(WeightTransferEngine[NoInfo, FileInfo]):
    """Reads one tensor at a time; each layer takes its share of it and is packed as soon as it is whole."""

    init_info_cls = NoInfo
    update_info_cls = FileInfo

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        """Nothing to connect to."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileInfo) -> None:
        self.model.load_weights(tensors(update_info.path))  # type: ignore[operator]

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu() and self.model_config.hf_text_config.tie_word_embeddings:
            vllm_tied_head.pack_again(self.model)

    def shutdown(self) -> None:
        """Nothing is kept open."""


class Registration:
    """Extension of vLLM's worker that adds nothing: naming it makes the worker import this module."""


def tensors(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            yield name, file.get_tensor(name)


WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)
