"""One forward pass over any transformers causal language model, with our own cache under it.

For: logits of left-padded rows. Not for: sampling, or which rows there are (`torch_rows`); Llama in float32 has a
faster way (`torch_llama`) that is held against this one.
"""

from __future__ import annotations

import inspect
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from producers.engines.torch_columns import Window
from producers.engines.torch_linear import Product, products_of


class Forward(Protocol):
    """n rows · q columns computed now · w columns attended to, the last q of them computed now."""

    products: list[Product]
    """Weights that must be renewed after they were written to."""

    def __call__(
        self, ids: Tensor, positions: Tensor, valid: Tensor | None, window: Window | None, keep: int
    ) -> Tensor:
        """(n, q) ids, (n, q) positions, (n, w) which columns belong to the row (None: all) → (n, keep, V) last logits.

        With a window, keys and values before the q columns are read from it and those of the q columns are written to
        it.
        """
        ...


class TransformersForward:
    """Whatever the module's class is; its arguments are asked for once."""

    def __init__(self, module: PreTrainedModel) -> None:
        self.module = module
        self.products = products_of(module)
        self.takes = inspect.signature(module.forward).parameters
        layers = int(module.config.get_text_config().num_hidden_layers)
        self.layers = [WindowLayer(layer) for layer in range(layers)]

    def __call__(
        self, ids: Tensor, positions: Tensor, valid: Tensor | None, window: Window | None, keep: int
    ) -> Tensor:
        arguments = {"position_ids": positions, "logits_to_keep": keep}
        for layer in self.layers:
            layer.window = window
        output = self.module(
            input_ids=ids,
            attention_mask=None if valid is None else valid.long(),
            past_key_values=None if window is None else Cache(layers=list(self.layers)),
            use_cache=window is not None,
            **{name: value for name, value in arguments.items() if name in self.takes},
        )
        return output.logits[:, -keep:]


class WindowLayer(CacheLayerMixin):
    """One layer of a transformers cache that lives in a window; it owns nothing."""

    is_sliding = False

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.window: Window | None = None

    @property
    def past(self) -> int:
        return 0 if self.window is None else self.window.past

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """(n, heads, q, D) new ones → (n, heads, w, D) all."""
        assert self.window is not None
        keys, values = self.window.extend(self.layer, key_states.transpose(1, 2), value_states.transpose(1, 2))
        return keys.transpose(1, 2), values.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.past + query_length, 0

    def get_seq_length(self) -> int:
        return self.past

    def get_max_length(self) -> int:
        return -1

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the window's buffers are made at their first use."""


def places(starts: Tensor, first: int, filled: int, end: int) -> tuple[Tensor, Tensor | None]:
    """Positions (n, end-filled) and validity (n, end-first) of columns, when row i starts in column starts[i] ≥
    first.
    """
    positions = (torch.arange(filled, end) - starts[:, None]).clamp_(min=0)
    if bool((starts == first).all()):
        return positions, None
    return positions, torch.arange(first, end) >= starts[:, None]
