"""A step's record and an evaluation's, as Prometheus counts them.

For: the trainer's endpoint; the same lines that go into `steps.jsonl` and `evaluations.jsonl`. Not for: what Prometheus
gets from the trainer's heartbeat (`broker.metrics_endpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.measures import ACCURACY, LEARNING, REWARD, STALENESS, STEP_SECONDS, STEPS
from broker.metrics import Metrics

PARTS = ("wait", "train", "publish")
OUR_OWN = {"version", "at", "seconds", "reward", "groups", "rollouts", "tokens", "zero_signal", "recovered"}
"""Of a step's record, what no learner says."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    metrics: Metrics

    def step(self, record: Mapping[str, Any]) -> None:
        """Count a version. One whose trainer died before it was recorded counts too, but has no times."""
        self.metrics.count(STEPS)
        self.metrics.put(REWARD, record["reward"])
        for versions, groups in record["staleness"]["counts"].items():
            for _ in range(groups):
                self.metrics.observe(STALENESS, int(versions))
        for part in PARTS:
            if f"{part}_s" in record:
                self.metrics.observe(STEP_SECONDS, record[f"{part}_s"], part=part)
        for name, value in learned(record).items():
            self.metrics.put(LEARNING, value, quantity=name)

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.metrics.put(ACCURACY, record["accuracy"])


def learned(record: Mapping[str, Any]) -> dict[str, float]:
    """What the learner itself said of the step: loss, kl, ratios, …"""
    ours = OUR_OWN | {f"{part}_s" for part in PARTS}
    return {name: float(value) for name, value in record.items() if name not in ours and isinstance(value, int | float)}
