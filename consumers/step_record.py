"""One line per trained version in the run folder: what a curve, a report and a person need.

For: `steps.jsonl`. Not for: the ledger of record (the store's manifests and the server's ledger stream).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.messages import Group
from consumers.learners.base import StepResult
from consumers.staleness import Spread


@dataclass(slots=True)
class StepRecord:
    path: Path
    last_reward: float = 0.0

    def step(
        self,
        version: int,
        groups: Sequence[Group],
        staleness: Spread,
        result: StepResult,
        *,
        wait_s: float,
        train_s: float,
        publish_s: float,
    ) -> None:
        """Append the line of `version`; a replayed or repeated version appends again, and readers keep the last."""
        rewards = [group.reward or 0.0 for group in groups]
        self.last_reward = sum(rewards) / max(1, len(rewards))
        line = {
            "version": version,
            "at": time.time(),
            "seconds": wait_s + train_s + publish_s,
            "reward": self.last_reward,
            "staleness": {"mean": staleness.mean, "max": staleness.largest, "counts": dict(staleness.counts)},
            "groups": len(groups),
            "rollouts": sum(group.prompt.size for group in groups),
            "tokens": sum(group.tokens for group in groups),
            "zero_signal": sum(no_spread(group) for group in groups),
            "wait_s": wait_s,
            "train_s": train_s,
            "publish_s": publish_s,
            **result.metrics,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def no_spread(group: Group) -> bool:
    return group.scores is not None and bool(group.scores.rewards.max() == group.scores.rewards.min())
