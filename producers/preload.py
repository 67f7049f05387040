"""What a producer's process imports before it can load its engine: seconds, and the same for every start.

For: the role itself, first thing, and a slot's spare, ahead of time. Not for: loading anything; no GPU is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from broker.settings import load_section
from producers.settings import RolloutSection


def preload(role: str, folder: Path, raw: Mapping[str, Any]) -> None:
    """Import what `role` needs for the run in `folder` with these settings. Raises Misconfigured."""
    if role != "rollout":
        return
    from producers import engines

    for module in ("producers.rollout_producer", "producers.weight_follower"):
        import_module(module)
    engines.preload(load_section(RolloutSection, "rollout", raw["rollout"]).engine, folder / "model")
