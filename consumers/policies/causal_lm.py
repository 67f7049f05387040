"""The policy of token models: any causal language model transformers opens, trained whole or through LoRA adapters.

For: log-probs of continuations, and weights under the names engines load. Not for: optimizing or sampling.

R rollouts · U different contexts among them · N actions of all rollouts, flat · V vocabulary.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

from broker.errors import Broken, Misconfigured
from broker.messages import Actions
from consumers.policies.adapters import adapter_tensors, folded, with_adapters
from consumers.policies.quick_products import quicken
from consumers.policies.weight_files import aside, buffers, write
from consumers.settings import Lora

TENSORS = "model.safetensors"
ADAPTERS = "adapters.safetensors"
"""Beside the folded weights, so that a trainer can take its adapters back from a published version."""

WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.gguf")

WORTH_SHARING = 0.8
"""Two passes with a cache between them cost more per token than one; they must save this much."""


def preload(folder: Path) -> None:
    """Import the folder's kind of model; one that transformers does not know is told of when it is loaded."""
    kind = str(json.loads((folder / "config.json").read_text()).get("model_type", "")).replace("-", "_")
    module = f"transformers.models.{kind}.modeling_{kind}"
    with contextlib.suppress(ImportError):
        importlib.import_module(module)


class Columns(NamedTuple):
    """Rollouts as tensors; siblings point to one context."""

    contexts: Tensor
    """(U, C) ids, padded on the left."""
    context_lengths: Tensor
    """(U,)"""
    context_of: Tensor
    """(R,) a rollout's context."""
    continuations: Tensor
    """(R, L) ids, padded on the right."""
    lengths: Tensor
    """(R,) actions of a rollout."""
    temperatures: Tensor
    """(R,)"""


class ContinuationLogprobs(nn.Module):
    """What DeepSpeed wraps: the model's own forward, in which only the positions asked for meet the vocabulary."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        layers = DynamicCache(config=model.config).layers
        self.can_share = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        """Whether a cache can be handed from a context to its siblings: plain attention in all layers."""

    def forward(self, *tensors: Tensor) -> Tensor:
        """The tensors of `Columns` → (N,) float32, rollout after rollout.

        A context is computed once for all its siblings, unless computing it with each of them is cheaper.
        """
        batch = Columns(*tensors)
        rows, width, longest = len(batch.context_of), batch.contexts.shape[1], batch.continuations.shape[1]
        shared = batch.contexts.numel() + rows * (longest - 1)
        worth_it = shared < WORTH_SHARING * rows * (width + longest - 1)
        if self.can_share and worth_it and not partitioned(self.model):
            return self.in_two_passes(batch)
        return chosen(*self.in_one_pass(batch))

    def in_one_pass(self, batch: Columns) -> tuple[Tensor, Tensor, Tensor]:
        """(N, V) logits, (N,) the actions' ids, (N,) their temperatures."""
        ids, starts = joined(batch)
        rows, columns = places(batch.lengths)
        before = rows * (ids.shape[1] - 1) + starts[rows] - 1 + columns
        logits = self.logits(before, input_ids=ids[:, :-1], use_cache=False).logits[0]
        return logits, batch.continuations[rows, columns], batch.temperatures[rows]

    def in_two_passes(self, batch: Columns) -> Tensor:
        """Contexts first: their last positions give the first actions. Then continuations over the contexts' cache."""
        _, lengths, context_of, continuations, _, temperatures = batch
        width, longest = batch.contexts.shape[1], continuations.shape[1]
        mask = torch.arange(width, device=lengths.device) >= width - lengths[:, None]
        padded = not bool(mask.all())
        ends = torch.arange(1, len(lengths) + 1, device=lengths.device) * width - 1
        told = positions(mask, width) if padded else {}
        first = self.logits(ends, input_ids=batch.contexts, use_cache=True, **told)
        begun = batch.lengths > 0
        opening = first.logits[0].index_select(0, context_of[begun])
        opening = chosen(opening, continuations[begun, 0], temperatures[begun])
        if longest == 1:
            return opening
        rows, columns = places(batch.lengths)
        later = columns > 0
        before = rows[later] * (longest - 1) + columns[later] - 1
        seen = torch.cat([mask[context_of], mask.new_ones(len(context_of), longest - 1)], dim=1)
        told = positions(seen, longest - 1) if padded else {}
        cache = spread(first.past_key_values, context_of)
        rest = self.logits(before, input_ids=continuations[:, :-1], past_key_values=cache, use_cache=True, **told)
        others = chosen(rest.logits[0], continuations[rows[later], columns[later]], temperatures[rows[later]])
        return opening.new_empty(len(rows)).masked_scatter(~later, opening).masked_scatter(later, others)

    def logits(self, places: Tensor, **inputs: Any) -> Any:
        """The model's output with logits (1, n, V) of these places of the flattened batch alone.

        The head sees the chosen hidden states; what the model does to logits afterwards (caps, scales) it does to them.
        """
        with before_head(self.model, lambda hidden: hidden.flatten(0, 1).index_select(0, places)[None]):
            return self.model(**inputs)


class CausalLm:
    """See `base.Policy`."""

    def __init__(
        self, folder: Path, *, dtype: str, lora: Lora | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        """Raises Misconfigured when transformers cannot open the folder, or LoRA's targets are not in the model."""
        self.folder, self.device, self.lora = folder, torch.device(device), lora
        self.model = opened(folder, dtype)
        if lora:
            with_adapters(self.model, lora, seed=seed)
        self.model.to(self.device).eval()
        quicken(self.model)
        self.module = ContinuationLogprobs(self.model)
        trained = [(name, each) for name, each in self.module.named_parameters() if each.requires_grad]
        self.shapes = {name: each.shape for name, each in trained}
        """Kept apart: ZeRO 3 leaves empty parameters here."""

    @property
    def quadratic(self) -> float:
        """Per layer 24·h² multiplications for a token and 2·h for a pair of tokens."""
        return 1 / (12 * int(self.model.config.get_text_config().hidden_size))

    def logprobs(
        self,
        module: nn.Module,
        contexts: Sequence[Actions],
        continuations: Sequence[Actions],
        temperatures: Sequence[float],
    ) -> Tensor:
        if not contexts:
            return torch.zeros(0, device=self.device)
        return module(*(tensor.to(self.device) for tensor in columns(contexts, continuations, temperatures)))

    def export(self, tensors: Mapping[str, Tensor] | None = None) -> Callable[[Path], None]:
        own = dict(self.module.named_parameters()) if tensors is None else tensors
        own = {name.removeprefix("model."): tensor.detach() for name, tensor in own.items()}
        files = {TENSORS: aside(folded(own, self.lora) | dict(buffers(self.model)), self.module)}
        if self.lora:
            files[ADAPTERS] = aside(adapter_tensors(own), self.module)

        def into(folder: Path) -> None:
            for name, each in files.items():
                write(each, folder / name)

        return into

    def published(self, folder: Path) -> dict[str, Tensor]:
        """Parameters to take over from a published version, by their names in `module`: the adapters, or all there are.

        Raises Broken when the folder holds other tensors.
        """
        found = load_file(folder / (ADAPTERS if self.lora else TENSORS))
        own = {f"model.{name}": tensor for name, tensor in found.items() if f"model.{name}" in self.shapes}
        if missing := [name for name, shape in self.shapes.items() if name not in own or own[name].shape != shape]:
            raise Broken(
                f"{folder} holds no {missing[0]} of shape {list(self.shapes[missing[0]])} ({len(missing)} in all); "
                "stopping; it was written for another model"
            )
        return own

    def save_pretrained(self, folder: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
        """The initial folder again (config, tokenizer, chat template), with the weights as they are now."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WEIGHT_FILES))
        self.export(tensors)(folder)


def opened(folder: Path, dtype: str) -> Any:
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(
            f"{folder}: transformers cannot open it as a causal language model: {error}; nothing was started; "
            "[model] init must name a folder with config.json and safetensors"
        ) from error


def columns(contexts: Sequence[Actions], continuations: Sequence[Actions], temperatures: Sequence[float]) -> Columns:
    """Equal contexts are found by their bytes."""
    index: dict[bytes, int] = {}
    context_of = [index.setdefault(each.tobytes(), len(index)) for each in contexts]
    different = [contexts[context_of.index(number)] for number in range(len(index))]
    return Columns(
        contexts=torch.from_numpy(padded(different, left=True)),
        context_lengths=torch.tensor([len(each) for each in different]),
        context_of=torch.tensor(context_of),
        continuations=torch.from_numpy(padded(continuations, left=False)),
        lengths=torch.tensor([len(each) for each in continuations]),
        temperatures=torch.tensor([each or 1.0 for each in temperatures], dtype=torch.float32),
    )


def padded(sequences: Sequence[Actions], *, left: bool) -> NDArray[np.int64]:
    width = max(1, *(len(each) for each in sequences))
    ids = np.zeros((len(sequences), width), np.int64)
    for row, each in zip(ids, sequences, strict=True):
        row[width - len(each) if left else 0 :][: len(each)] = each
    return ids


def partitioned(model: nn.Module) -> bool:
    """Whether ZeRO 3 has cut the weights up: ranks gather them together, so all must call every layer equally often."""
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters())


def joined(batch: Columns) -> tuple[Tensor, Tensor]:
    """(R, C+L) each context and its continuation from the first column on, and (R,) where the continuation starts.

    Padding on the right needs no mask: causal attention never looks there, and nothing there is asked for.
    """
    starts = batch.context_lengths[batch.context_of]
    both = torch.cat([batch.contexts[batch.context_of], batch.continuations], dim=1)
    shift = torch.arange(both.shape[1], device=both.device) + (batch.contexts.shape[1] - starts)[:, None]
    return both.gather(1, shift % both.shape[1]), starts


def places(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) row and (N,) column of each action, rollout after rollout."""
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    return rows, torch.arange(len(rows), device=lengths.device) - starts[rows]


def positions(mask: Tensor, last: int) -> dict[str, Tensor]:
    """What a left-padded batch must tell the model about its `last` columns."""
    return {"attention_mask": mask.long(), "position_ids": (mask.cumsum(1) - 1).clamp(min=0)[:, -last:]}


def spread(cache: DynamicCache, context_of: Tensor) -> DynamicCache:
    """Each row gets its context's keys and values; gradients of siblings add up."""
    for layer in cache.layers:
        assert isinstance(layer, DynamicLayer)
        assert layer.keys is not None
        assert layer.values is not None
        layer.keys, layer.values = to_siblings(layer.keys, context_of), to_siblings(layer.values, context_of)
    return cache


def to_siblings(of_contexts: Tensor, context_of: Tensor) -> Tensor:
    """(U, …) → (R, …). Whole groups, one after the other, are expanded: summing their gradients is quicker than adding
    them up row by row.
    """
    count = len(of_contexts)
    each = len(context_of) // count
    if torch.equal(context_of, torch.arange(count, device=context_of.device).repeat_interleave(each)):
        return of_contexts[:, None].expand(-1, each, *of_contexts.shape[1:]).flatten(0, 1)
    return of_contexts.index_select(0, context_of)


def chosen(logits: Tensor, ids: Tensor, temperatures: Tensor) -> Tensor:
    """(n, V) logits, (n,) ids, (n,) temperatures → (n,) float32 log-probs."""
    return -functional.cross_entropy(logits.float() / temperatures[:, None], ids, reduction="none")


@contextmanager
def before_head(model: Any, change: Any) -> Generator[None]:
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (change(inputs[0]),))
    try:
        yield
    finally:
        handle.remove()
