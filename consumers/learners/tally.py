"""What a step reports: sums over the actions it trained on, from all passes and ranks, made into means and shares.

For: metrics. Not for: what the loss computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from consumers.learners.gang import Gang

LARGEST = ("ratio_max",)
"""Not summed: the largest counts."""

SUMS = ("loss", "actions", "kl", "clipped", "mismatch_k3", "ratio", "masked", "weight", "weight_squared")


@dataclass(slots=True)
class Tally:
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0.0))
    largest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LARGEST, 0.0))
    norms: list[float] = field(default_factory=list[float])
    """Gradient norm of each optimizer step, already the same on all ranks."""

    def add(self, metrics: Mapping[str, float]) -> None:
        """Unknown names are sums as well, as long as every rank reports them in each pass."""
        for name, value in metrics.items():
            if name in LARGEST:
                self.largest[name] = max(self.largest[name], value)
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value

    def over(self, gang: Gang) -> None:
        """Make the numbers the same on every rank."""
        for numbers, reduce in ((self.sums, gang.total), (self.largest, gang.largest)):
            values = reduce(torch.tensor(list(numbers.values()), dtype=torch.float64)).tolist()
            numbers.update(zip(numbers, values, strict=True))

    def metrics(self, *, optimizer_steps: int) -> dict[str, float]:
        """Means over trained actions; `loss` and `grad_norm` are means over the optimizer steps asked for.

        `mismatch_k3` estimates KL(behaviour‖proximal) per action; `ess` is the share of actions
        that count, (Σw)²/(n·Σw²).
        """
        actions = self.sums["actions"]
        mean = {name: value / actions if actions else 0.0 for name, value in self.sums.items()}
        others = {name: value for name, value in mean.items() if name not in SUMS}
        squared = self.sums["weight_squared"]
        return others | {
            "loss": self.sums["loss"] / optimizer_steps,
            "grad_norm": sum(self.norms) / optimizer_steps,
            "kl": mean["kl"],
            "mismatch_k3": mean["mismatch_k3"],
            "ratio_mean": mean["ratio"],
            "ratio_max": self.largest["ratio_max"],
            "clipped_share": mean["clipped"],
            "masked_share": mean["masked"],
            "ess": self.sums["weight"] ** 2 / (actions * squared) if actions and squared else 0.0,
            "trained_actions": actions,
        }
