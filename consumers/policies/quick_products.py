"""Linear layers whose products, forward and backward, go through oneDNN in float32 on a CPU.

For: training there. Not for: GPUs, other precisions (torch calls oneDNN for those itself), or sampling, which needs no
gradient (`producers.engines.torch_linear` says why oneDNN: torch's own float32 product is MKL's, which keeps to AVX2
on processors other than Intel's, 110 GFLOP/s a core where oneDNN reaches 250).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

WORTH = 40_000_000
"""Multiplications from which oneDNN is ahead although it first makes a kernel, in 0.3 to 0.5 ms, for every new number
of rows: passes of answers of all lengths hardly ever have one twice. MKL takes 1.3 ms for 59 million.
"""

AVAILABLE = torch.backends.mkldnn.is_available()


def product(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(…, in) · (out, in)ᵀ + (out,) → (…, out); any strides."""
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")  # noqa: SLF001  nn.Linear's own end


class QuickProduct(torch.autograd.Function):
    """y = x·Wᵀ + b with ∂x = ∂y·W, ∂W = ∂yᵀ·x, ∂b = Σ∂y. Arguments: (…, in) states, (out, in) weight, (out,) bias."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        return product(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()  # one that was expanded has no strides of its own
        flat = gradient.flatten(0, -2)
        wants_states, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            product(gradient, weight.t()) if wants_states else None,
            product(flat.t(), states.flatten(0, -2).t()) if wants_weight else None,
            flat.sum(0) if wants_bias else None,
        )


class Linear(nn.Linear):
    """A linear layer that multiplies so; its parameters are what they were."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name nn.Linear gives it
        rows = input.numel() // input.shape[-1]
        if rows * self.in_features * self.out_features < WORTH:
            return functional.linear(input, self.weight, self.bias)
        return QuickProduct.apply(input, self.weight, self.bias)


def quicken(module: nn.Module) -> None:
    """Let every plain float32 linear layer on a CPU multiply so."""
    for child in module.modules():
        if AVAILABLE and type(child) is nn.Linear and child.weight.dtype == torch.float32 and not child.weight.is_cuda:
            child.__class__ = Linear
