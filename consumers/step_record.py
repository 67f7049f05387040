"""One line per trained version in the run folder: what a curve, a report and a person need.

For: `steps.jsonl`. Not for: the ledger of record (the store's manifests and the server's ledger stream).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.messages import Group
from broker.weights import BATCH, Manifest, VersionStore, read_batch
from consumers.learners.base import StepResult
from consumers.staleness import Spread, spread


@dataclass(slots=True)
class StepRecord:
    path: Path
    hears: Sequence[Callable[[Mapping[str, Any]], None]] = ()
    """Told of each line once it stands there."""
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
        self.last_reward = reward_of(groups)
        timings = {"wait_s": wait_s, "train_s": train_s, "publish_s": publish_s}
        self.append(version, groups, staleness, sum(timings.values()), {**timings, **result.metrics})

    def recover(self, lineage: Sequence[Manifest], store: VersionStore) -> None:
        """Lines of versions whose trainer died between committing and recording: what their batches still tell."""
        known = self.recorded()
        for one in lineage:
            batch = store.folder(one.path) / BATCH
            if one.version > 0 and one.version not in known and batch.is_file():
                groups = read_batch(batch.parent)
                oldest = [group.rollouts.oldest_version for group in groups if group.rollouts]
                self.append(one.version, groups, spread(oldest, one.version - 1), 0.0, {"recovered": True})

    def recorded(self) -> set[int]:
        """Versions that have a line. One its writer could not finish counts for nothing and is closed off."""
        content = self.path.read_text() if self.path.is_file() else ""
        if content and not content.endswith("\n"):
            with self.path.open("a") as file:
                file.write("\n")
        found: set[int] = set()
        for line in content.splitlines():
            with contextlib.suppress(ValueError):
                found.add(json.loads(line)["version"])
        return found

    def append(
        self, version: int, groups: Sequence[Group], staleness: Spread, seconds: float, more: Mapping[str, object]
    ) -> None:
        line = {
            "version": version,
            "at": time.time(),
            "seconds": seconds,
            "reward": reward_of(groups),
            "staleness": {"mean": staleness.mean, "max": staleness.largest, "counts": dict(staleness.counts)},
            "groups": len(groups),
            "rollouts": sum(group.prompt.size for group in groups),
            "tokens": sum(group.tokens for group in groups),
            "zero_signal": sum(no_spread(group) for group in groups),
            **more,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        for hear in self.hears:
            hear(line)


def reward_of(groups: Sequence[Group]) -> float:
    return sum(group.reward or 0.0 for group in groups) / max(1, len(groups))


def no_spread(group: Group) -> bool:
    return group.scores is not None and bool(group.scores.rewards.max() == group.scores.rewards.min())
