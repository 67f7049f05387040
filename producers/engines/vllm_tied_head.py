"""The output layer of a model with tied embeddings, packed again after new weights.

For: one fault of one vLLM version. On a CPU, vLLM 0.32.0 multiplies with a packed copy of the output layer's weights.
New weights for a tied model come under the embedding's name only, so the output layer is not packed again and goes on
with the old ones, without an error: log-probabilities are off by nats. Not for: untied models, whose output layer is
loaded, and packed, under its own name; nor for GPUs, where nothing is packed.

To be deleted when vLLM packs a tied layer by itself; the engine's parity test at an update says when.
"""

from __future__ import annotations

import torch
import vllm
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from broker.errors import Misconfigured

TESTED = "0.32.0"


def check_version() -> None:
    """Raises Misconfigured on a version that this was not tested with."""
    if vllm.__version__ != TESTED:
        raise Misconfigured(
            f"the model ties its embeddings, and vLLM {vllm.__version__} may keep an old output layer when new weights "
            f"come: the mend here was tested with {TESTED} only; nothing was started; install vLLM {TESTED}, untie the "
            'model, or use [rollout] engine = "torch"'
        )


def pack_again(model: torch.nn.Module) -> None:
    """Give every output layer a packed copy of the weights it has now."""
    check_version()
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if isinstance(layer, ParallelLMHead) and isinstance(method, QuantizeMethodBase):
            method.process_weights_after_loading(layer)
