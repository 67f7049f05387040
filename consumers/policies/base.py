"""What a policy adapter promises: the only trainer-side code that knows what an action is.

For: build, log-probs, export. Not for: optimizing (`learners`), sampling (engines).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broker.messages import Actions

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Policy(Protocol):
    module: nn.Module
    """What DeepSpeed wraps; `logprobs` runs through whatever module it is given (the wrapped one while training)."""

    device: torch.device

    @property
    def quadratic(self) -> float:
        """b in the cost L + b·L² of training on a sequence of L actions; 0 when actions do not look at each other."""
        ...

    def logprobs(
        self,
        module: nn.Module,
        contexts: Sequence[Actions],
        continuations: Sequence[Actions],
        temperatures: Sequence[float],
    ) -> Tensor:
        """Flat (N,) float32 log-probs of all continuations' actions, rollout after rollout, differentiable.

        Temperature divides the logits as at sampling (0 counts as 1).
        """
        ...

    def export(self, tensors: Mapping[str, Tensor] | None = None) -> Callable[[Path], None]:
        """Put the weights aside as they are now; what is returned writes `model.safetensors` into a folder, under the
        names engines load (tied and adapter weights folded in), also while training goes on.

        `tensors`: full parameters by their names in `module`, gathered elsewhere (ZeRO-3); default the module's own.
        """
        ...

    def published(self, folder: Path) -> Mapping[str, Tensor]:
        """What `export` wrote, back under the names the trained parameters have in `module`."""
        ...

    def save_pretrained(self, folder: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
        """A folder that `transformers.from_pretrained` (or the modality's own loader) opens."""
        ...
