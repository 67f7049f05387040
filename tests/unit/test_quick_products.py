"""Products through oneDNN are torch's own, and so are their gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from consumers.policies.quick_products import WORTH, Linear, quicken

SHAPES = [(64, 40, 128), (2560, 128)]
"""Of states: with and without a dimension for positions, both worth it."""


def layers(*, bias: bool, seed: int = 0) -> tuple[nn.Linear, nn.Linear]:
    """Torch's own, and ours with the same numbers."""
    torch.manual_seed(seed)
    theirs, ours = nn.Linear(128, 256, bias=bias), nn.Linear(128, 256, bias=bias)
    ours.load_state_dict(theirs.state_dict())
    quicken(ours)
    assert type(ours) is Linear
    return theirs, ours


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", [lambda y: y.mean(), lambda y: (y.transpose(0, -1) ** 2).sum()])
def test_outputs_and_gradients_are_those_of_torch(
    shape: tuple[int, ...], bias: bool, loss: Callable[[Tensor], Tensor]
) -> None:
    theirs, ours = layers(bias=bias)
    states = torch.randn(shape)
    assert states.numel() * 256 >= WORTH
    found: list[list[Tensor]] = []
    for layer in (theirs, ours):
        given = states.clone().requires_grad_()
        output = layer(given)
        loss(output).backward()
        gradients = [given.grad, *(each.grad for each in layer.parameters())]
        found.append([output.detach(), *(each for each in gradients if each is not None)])
    assert len(found[0]) == len(found[1]) == 3 + bias
    for theirs_, ours_ in zip(*found, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-5, atol=1e-6 * float(theirs_.abs().max()))


def test_gradients_that_nobody_wants_are_not_computed() -> None:
    """Base layers under adapters are frozen; the first layer's input is no leaf."""
    _, ours = layers(bias=True)
    ours.requires_grad_(False)
    states = torch.randn(2560, 128, requires_grad=True)
    ours(states).sum().backward()
    assert states.grad is not None
    assert ours.weight.grad is None


def test_only_plain_linear_layers_in_float32_are_changed() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16), nn.Embedding(4, 4))
    quicken(module)
    assert [type(each) for each in module] == [Linear, nn.Linear, nn.Embedding]


def test_the_same_products_give_the_same_bits() -> None:
    _, ours = layers(bias=False)
    states = torch.randn(2560, 128)
    assert torch.equal(ours(states), ours(states))
