"""An engine of one's own that imports torch and samples like `scripted`: heavy to start, quick to run."""

from __future__ import annotations

from pathlib import Path

import torch

from producers.engines import scripted
from producers.settings import RolloutSection


def make(model_folder: Path, settings: RolloutSection, *, seed: int) -> scripted.ScriptedCore:
    torch.zeros(1)
    return scripted.make(model_folder, settings, seed=seed)
