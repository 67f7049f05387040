"""What a consumer's process imports before it can load its model: seconds, and the same for every start.

For: the role itself, first thing, and a slot's spare, ahead of time. Not for: loading anything; no GPU is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from broker.settings import load_section
from consumers.settings import RewardSection, TrainSection


def preload(role: str, folder: Path, raw: Mapping[str, Any]) -> None:
    """Import what `role` needs for the run in `folder` with these settings. Raises Misconfigured."""
    if role == "trainer":
        from consumers import learners

        import_module("consumers.trainer_start")
        learners.preload(folder / "model", load_section(TrainSection, "train", raw["train"]))
    elif role == "judge":
        from consumers import rewards

        import_module("consumers.reward_consumer")
        rewards.preload(load_section(RewardSection, "reward", raw["reward"]))
