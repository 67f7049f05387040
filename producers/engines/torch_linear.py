"""Matrix products in float32 through oneDNN, which torch asks for lower precisions only.

For: inference on a CPU. Not for: training (the operator has no gradient), other dtypes (torch calls oneDNN itself).

torch's own float32 product is MKL's, which on processors other than Intel's keeps to AVX2: 110 GFLOP/s a core where
oneDNN reaches 250 (AMD EPYC with AVX-512, 512 × 128 × 384). Small products are better left to MKL: oneDNN takes 20 µs
to begin. A large matrix is kept in oneDNN's own order as well: with few rows that doubles the speed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

WORTH = 1_500_000
"""Multiplications from which oneDNN is ahead."""

LARGE = 250_000
"""Numbers in a matrix from which a second copy, in oneDNN's order, is ahead of one that is put in order each time."""

AVAILABLE = torch.backends.mkldnn.is_available()


class Product:
    """A weight matrix to multiply by: (…, in) · (out, in)ᵀ + (out,) → (…, out)."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.ordered: Tensor | None = None
        self.through_onednn = AVAILABLE and weight.dtype == torch.float32

    def __call__(self, states: Tensor) -> Tensor:
        rows = states.numel() // states.shape[-1]
        if self.through_onednn and rows * self.weight.numel() >= WORTH:
            weight = self.weight if self.ordered is None else self.ordered
            return torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001  the operator nn.Linear itself ends in
                states, weight, self.bias, "none", [], ""
            )
        return functional.linear(states, self.weight, self.bias)

    def renew(self) -> None:
        """The weight was written to: put it in order again."""
        if self.through_onednn and self.weight.numel() >= LARGE:
            self.ordered = torch.ops.mkldnn._reorder_linear_weight(self.weight)  # noqa: SLF001  its counterpart


class Linear(nn.Linear):
    """A linear layer that multiplies so; its parameters are what they were."""

    product: Product

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name nn.Linear gives it
        return self.product(input)


def products_of(module: nn.Module) -> list[Product]:
    """Let every linear layer of a model multiply so."""
    return [product_of(child) for child in module.modules() if type(child) in (nn.Linear, Linear)]


def product_of(layer: nn.Module) -> Product:
    layer.__class__ = Linear
    linear = cast("Linear", layer)
    linear.product = Product(linear.weight, linear.bias)
    return linear.product


def renew(products: Iterable[Product]) -> None:
    for product in products:
        product.renew()
