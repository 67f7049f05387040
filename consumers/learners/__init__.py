"""Learners by name; a dotted path `module:factory` is accepted wherever a name is."""

from __future__ import annotations

import sys
from pathlib import Path

from broker.registry import Named
from broker.settings import ModelSection
from consumers.learners.base import Learner
from consumers.settings import AlgorithmSection, TrainSection

LEARNERS = {
    "deepspeed": "consumers.learners.ranks:make",
    "scripted": "consumers.learners.scripted:make",
}


def preload(model_folder: Path, settings: TrainSection) -> None:
    """Import what `create` would, and load nothing. Raises Misconfigured for a name that leads to no learner."""
    make = Named(f'[train] learner = "{settings.learner}"', settings.learner).load(LEARNERS)
    more = getattr(sys.modules[make.__module__], "preload", None)
    if more is not None:
        more(model_folder, settings)


def create(
    name: str,
    *,
    model_folder: Path,
    settings: TrainSection,
    algorithm: AlgorithmSection,
    model: ModelSection,
    seed: int,
) -> Learner:
    """The learner of these settings. Raises Misconfigured for a name that leads to no learner."""
    return Named(f'[train] learner = "{name}"', name).made(
        LEARNERS,
        Learner,
        model_folder=model_folder,
        settings=settings,
        algorithm=algorithm,
        model=model,
        seed=seed,
    )
