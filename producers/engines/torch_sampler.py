"""How one action is drawn: tempered logits and a number in [0, 1) that depends on the row alone.

For: pure functions of tensors. Not for: where logits come from (`torch_forward`, `torch_llama`).

The number is a counter-based hash of the group's seed, the sibling and the action's index, so a group samples the same
rollouts whatever else is in the batch (up to float arithmetic: another batch size rounds logits differently, and a
number that falls within that rounding of a boundary picks the neighbour).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ / φ, odd: steps of it visit all numbers of 64 bits."""


def uniforms(streams: NDArray[np.uint64], index: NDArray[np.int64]) -> NDArray[np.float32]:
    """(n,) stream of each row, (n,) which number of it → (n,) numbers in [0, 1): multiples of 2⁻²⁴."""
    with np.errstate(over="ignore"):
        bits = mixed(streams + index.astype(np.uint64) * GOLDEN)
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def streams(seed: int, size: int) -> NDArray[np.uint64]:
    """(size,) one stream per sibling of a group."""
    with np.errstate(over="ignore"):
        root = mixed(np.full(1, seed % 2**64, np.uint64))
        return mixed(root + np.arange(1, size + 1, dtype=np.uint64) * GOLDEN)


def mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits so that every input bit moves every output bit (SplitMix64: Steele, Lea and Flood, 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def divided(logits: Tensor, temperatures: Tensor) -> Tensor:
    """(n, …, V) logits in float32 over (n,) temperatures; 0 counts as 1."""
    logits = logits.float()
    if bool(((temperatures == 1) | (temperatures == 0)).all()):
        return logits
    divisors = torch.where(temperatures > 0, temperatures, torch.ones_like(temperatures))
    return logits / divisors.view(-1, *[1] * (logits.dim() - 1))


def tempered(logits: Tensor, temperatures: Tensor) -> Tensor:
    """(n, …, V) logits, (n,) temperatures → log-probabilities in float32."""
    return torch.log_softmax(divided(logits, temperatures), dim=-1)


def sample(logits: Tensor, temperatures: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """(n, V) logits, (n,) temperatures, (n,) numbers in [0, 1) → (n,) actions, (n,) their log-probabilities.

    An action is the first whose cumulated probability exceeds the number; at temperature 0 it is the likeliest. The
    log-probability is of the tempered distribution drawn from.
    """
    probabilities = torch.softmax(divided(logits, temperatures), dim=-1)
    below = probabilities.cumsum(dim=-1)
    actions = torch.searchsorted(below, numbers[:, None] * below[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
    if not bool(temperatures.all()):
        actions = torch.where(temperatures[:, None] > 0, actions, logits.argmax(dim=-1, keepdim=True))
    return actions[:, 0], probabilities.gather(1, actions).log()[:, 0]
