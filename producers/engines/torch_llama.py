"""A short forward pass for Llama in float32: the same numbers, a third of the operations.

For: small models on a CPU, where a step is bound by the number of operations. Not for: any other architecture or dtype;
`fits` says which, and `torch_model` compares the two passes before it uses this one.

Query, key and value weights lie in one buffer, and so do gate and up; the module's own parameters become views of
them, so new weights copied into the module are here at once.

Source: Touvron et al. 2023 (architecture), Su et al. 2021 (rotary positions), Zhang and Sennrich 2019 (root mean
square norm).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedModel

from producers.engines.torch_columns import Window
from producers.engines.torch_linear import Product

FIXED_ROPES = ("default", "linear", "llama3")
"""Rotary schemes whose angles depend on the position alone, not on the length of the batch."""


def fits(module: PreTrainedModel) -> bool:
    """Whether this pass computes what the module computes."""
    config = module.config
    return (
        type(module) is LlamaForCausalLM
        and module.dtype == torch.float32
        and config.hidden_act == "silu"
        and not config.attention_bias
        and not config.mlp_bias
        and config.rope_parameters["rope_type"] in FIXED_ROPES
    )


class Layer(NamedTuple):
    """The four products of one block and the weights of its two norms."""

    attention_norm: Tensor
    qkv: Product
    output: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


class LlamaForward:
    """See `torch_forward.Forward`. H query heads · K key and value heads · D numbers in a head."""

    def __init__(self, module: PreTrainedModel) -> None:
        config = module.config
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head = module.model.layers[0].self_attn.head_dim
        self.epsilon = config.rms_norm_eps
        self.layers = [fused(layer) for layer in module.model.layers]
        self.embedding, self.norm = module.model.embed_tokens.weight, module.model.norm.weight
        self.vocabulary = Product(module.lm_head.weight)
        self.products = [each for layer in self.layers for each in layer if isinstance(each, Product)] + [
            self.vocabulary
        ]
        self.cos, self.sin = rotary_table(module, config.max_position_embeddings)

    def __call__(
        self, ids: Tensor, positions: Tensor, valid: Tensor | None, window: Window | None, keep: int
    ) -> Tensor:
        hidden = functional.embedding(ids, self.embedding)
        cos, sin = self.cos[positions], self.sin[positions]
        allowed = None if valid is None else attention_mask(valid, ids.shape[1])
        for index, layer in enumerate(self.layers):
            hidden = hidden + self.attention(index, layer, hidden, cos, sin, allowed, window)
            gate, up = layer.gate_up(self.normed(hidden, layer.mlp_norm)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate).mul_(up))
        return self.vocabulary(self.normed(hidden[:, -keep:], self.norm))

    def normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.epsilon)

    def attention(
        self,
        index: int,
        layer: Layer,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        allowed: Tensor | None,
        window: Window | None,
    ) -> Tensor:
        rows, length, _ = hidden.shape
        mixed = layer.qkv(self.normed(hidden, layer.attention_norm))
        mixed = mixed.view(rows, length, self.heads + 2 * self.key_heads, self.head)
        turned, values = mixed.split([self.heads + self.key_heads, self.key_heads], dim=2)
        queries, keys = rotated(turned, cos, sin).split([self.heads, self.key_heads], dim=2)
        if window is not None:
            keys, values = window.extend(index, keys, values)
        seen = functional.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=allowed,
            is_causal=allowed is None and length > 1,
            enable_gqa=self.heads != self.key_heads,
        )
        return layer.output(seen.transpose(1, 2).reshape(rows, length, -1))


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(n, q, heads, D) turned by the angles of their positions, (n, q, 1, D); sin carries the sign of the half."""
    low, high = states.chunk(2, dim=-1)
    return torch.addcmul(states * cos, torch.cat([high, low], dim=-1), sin)


def rotary_table(module: PreTrainedModel, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines (length, 1, D) from the module's own rotary embedding."""
    cos, sin = module.model.rotary_emb(torch.zeros(1, 1), torch.arange(length)[None])
    signs = torch.ones(sin.shape[-1])
    signs[: len(signs) // 2] = -1
    return cos[0][:, None].contiguous(), (sin[0] * signs)[:, None].contiguous()


def attention_mask(valid: Tensor, length: int) -> Tensor:
    """(n, w) valid columns → (n, 1, length, w): earlier columns of the row; a column before its start sees itself
    alone.
    """
    if length == 1:
        return valid[:, None, None, :]
    width = valid.shape[1]
    order = torch.arange(width)
    now = order[width - length :, None]
    return ((valid[:, None, :] & (order <= now)) | (order == now))[:, None]


def fused(layer: Any) -> Layer:
    """One block's weights, with the projections that read the same input in one buffer."""
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        attention_norm=layer.input_layernorm.weight,
        qkv=joined(attention.q_proj, attention.k_proj, attention.v_proj),
        output=Product(attention.o_proj.weight),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=joined(mlp.gate_proj, mlp.up_proj),
        down=Product(mlp.down_proj.weight),
    )


def joined(*projections: nn.Linear) -> Product:
    """One product with a (Σ out, in) buffer; the projections' weights become views of it."""
    buffer = torch.cat([projection.weight.data for projection in projections])
    for projection, part in zip(projections, buffer.split([p.out_features for p in projections]), strict=True):
        projection.weight.data = part
    return Product(buffer)
