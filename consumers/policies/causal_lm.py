"""The policy of token models: any causal language model transformers opens, trained whole or through LoRA adapters.

For: log-probs of continuations, and weights under the names engines load. Not for: optimizing or sampling.

R rollouts · U different contexts among them · N actions of all rollouts, flat · V vocabulary.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

from broker.errors import Broken, Misconfigured
from broker.messages import Actions
from consumers.policies.adapters import adapter_tensors, folded, with_adapters
from consumers.settings import Lora

TENSORS = "model.safetensors"
ADAPTERS = "adapters.safetensors"
"""Beside the folded weights, so that a trainer can take its adapters back from a published version."""

WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.gguf")

WORTH_SHARING = 0.8
"""Two passes with a cache between them cost more per token than one; they must save this much."""


class ContinuationLogprobs(nn.Module):
    """What DeepSpeed wraps: the model's own forward, in which only the positions asked for meet the vocabulary."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        layers = DynamicCache(config=model.config).layers
        self.can_share = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
        """Whether a cache can be handed from a context to its siblings: plain attention in all layers."""

    def forward(
        self,
        contexts: Tensor,
        context_lengths: Tensor,
        context_of: Tensor,
        continuations: Tensor,
        lengths: Tensor,
        temperatures: Tensor,
    ) -> Tensor:
        """(U, C) left-padded ids, (U,), (R,) a row's context, (R, L) right-padded ids, (R,), (R,) → (N,) float32.

        Siblings share their context: it is computed once, unless computing it with each of them is cheaper.
        """
        rows, width, longest = len(context_of), contexts.shape[1], continuations.shape[1]
        shared = contexts.numel() + rows * (longest - 1)
        if self.can_share and shared < WORTH_SHARING * rows * (width + longest - 1):
            return self.in_two_passes(contexts, context_lengths, context_of, continuations, lengths, temperatures)
        ids, starts = joined(contexts, context_lengths, context_of, continuations)
        rows, columns = places(lengths)
        logits = self.logits(
            rows * (ids.shape[1] - 1) + starts[rows] - 1 + columns, input_ids=ids[:, :-1], use_cache=False
        ).logits[0]
        return chosen(logits, continuations[rows, columns], temperatures[rows])

    def in_two_passes(
        self,
        contexts: Tensor,
        context_lengths: Tensor,
        context_of: Tensor,
        continuations: Tensor,
        lengths: Tensor,
        temperatures: Tensor,
    ) -> Tensor:
        """Contexts first: their last positions give the first actions. Then continuations over the contexts' cache."""
        width = contexts.shape[1]
        mask = torch.arange(width, device=contexts.device) >= width - context_lengths[:, None]
        padded = not bool(mask.all())
        ends = torch.arange(1, len(contexts) + 1, device=contexts.device) * width - 1
        first = self.logits(ends, input_ids=contexts, use_cache=True, **(positions(mask, width) if padded else {}))
        begun = lengths > 0
        opening = chosen(
            first.logits[0].index_select(0, context_of[begun]), continuations[begun, 0], temperatures[begun]
        )
        rows, columns = places(lengths)
        if continuations.shape[1] < 2:
            return opening
        cache = spread(first.past_key_values, context_of)
        longer = columns > 0
        inner = rows[longer] * (continuations.shape[1] - 1) + columns[longer] - 1
        seen = torch.cat([mask[context_of], mask.new_ones(len(context_of), continuations.shape[1] - 1)], dim=1)
        more = positions(seen, continuations.shape[1] - 1) if padded else {}
        rest = self.logits(
            inner, input_ids=continuations[:, :-1], past_key_values=cache, use_cache=True, **more
        ).logits[0]
        flat = opening.new_empty(len(rows))
        flat = flat.index_put((~longer,), opening)
        return flat.index_put(
            (longer,), chosen(rest, continuations[rows[longer], columns[longer]], temperatures[rows[longer]])
        )

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
        self.module = ContinuationLogprobs(self.model)

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

    def export(self, folder: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
        own = dict(self.module.named_parameters()) if tensors is None else tensors
        own = {name.removeprefix("model."): tensor.detach() for name, tensor in own.items()}
        write(folded(own, self.lora) | dict(buffers(self.model)), folder / TENSORS)
        if self.lora:
            write(adapter_tensors(own), folder / ADAPTERS)

    def published(self, folder: Path) -> dict[str, Tensor]:
        """Parameters to take over from a published version, by their names in `module`: the adapters, or all there are.

        Raises Broken when the folder holds other tensors.
        """
        found = load_file(folder / (ADAPTERS if self.lora else TENSORS))
        own = {name: parameter.shape for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        renamed = {f"model.{name}": tensor for name, tensor in found.items() if f"model.{name}" in own}
        if missing := [name for name in own if name not in renamed or renamed[name].shape != own[name]]:
            raise Broken(
                f"{folder} holds no {missing[0]} of shape {list(own[missing[0]])} ({len(missing)} in all); "
                "stopping; it was written for another model"
            )
        return renamed

    def save_pretrained(self, folder: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
        """The initial folder again (config, tokenizer, chat template), with the weights as they are now."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WEIGHT_FILES))
        self.export(folder, tensors)


def opened(folder: Path, dtype: str) -> Any:
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(
            f"{folder}: transformers cannot open it as a causal language model: {error}; nothing was started; "
            "[model] init must name a folder with config.json and safetensors"
        ) from error


def columns(
    contexts: Sequence[Actions], continuations: Sequence[Actions], temperatures: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Inputs of `ContinuationLogprobs`; equal contexts are found by their bytes."""
    index: dict[bytes, int] = {}
    context_of = [index.setdefault(each.tobytes(), len(index)) for each in contexts]
    different = [contexts[context_of.index(number)] for number in range(len(index))]
    heat = [each or 1.0 for each in temperatures]
    return (
        torch.from_numpy(padded(different, left=True)),
        torch.tensor([len(each) for each in different]),
        torch.tensor(context_of),
        torch.from_numpy(padded(continuations, left=False)),
        torch.tensor([len(each) for each in continuations]),
        torch.tensor(heat, dtype=torch.float32),
    )


def padded(sequences: Sequence[Actions], *, left: bool) -> NDArray[np.int64]:
    width = max(1, *(len(each) for each in sequences))
    ids = np.zeros((len(sequences), width), np.int64)
    for row, each in zip(ids, sequences, strict=True):
        row[width - len(each) if left else 0 :][: len(each)] = each
    return ids


def joined(
    contexts: Tensor, context_lengths: Tensor, context_of: Tensor, continuations: Tensor
) -> tuple[Tensor, Tensor]:
    """(R, C+L) each context and its continuation from the first column on, and (R,) where the continuation starts.

    Padding on the right needs no mask: causal attention never looks there, and nothing there is asked for.
    """
    starts = context_lengths[context_of]
    both = torch.cat([contexts[context_of], continuations], dim=1)
    shift = (torch.arange(both.shape[1], device=both.device) + (contexts.shape[1] - starts)[:, None]) % both.shape[1]
    return both.gather(1, shift), starts


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
        layer.keys, layer.values = layer.keys.index_select(0, context_of), layer.values.index_select(0, context_of)
    return cache


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


def buffers(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers, which belong to a checkpoint as parameters do."""
    names = set(model.state_dict())
    return ((name, buffer) for name, buffer in model.named_buffers() if name in names)


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path, {"format": "pt"})
