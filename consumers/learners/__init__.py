"""Learners by name; a dotted path `module:factory` is accepted wherever a name is."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from broker.errors import Misconfigured
from broker.settings import ModelSection
from consumers.learners.base import Learner
from consumers.settings import AlgorithmSection, TrainSection

LEARNERS = {
    "deepspeed": "consumers.learners.ranks:make",
    "scripted": "consumers.learners.scripted:make",
}


def create(
    name: str,
    *,
    model_folder: Path,
    settings: TrainSection,
    algorithm: AlgorithmSection,
    model: ModelSection,
    seed: int,
) -> Learner:
    """The learner of these settings. Raises Misconfigured for a name that is neither listed nor importable."""
    path = LEARNERS.get(name, name)
    module, _, attribute = path.partition(":")
    try:
        make = getattr(import_module(module), attribute or "make")
    except (ImportError, AttributeError) as error:
        raise Misconfigured(
            f'[train] learner = "{name}": {error}; nothing was started; known: {", ".join(LEARNERS)}, '
            "or module:function"
        ) from error
    return make(model_folder=model_folder, settings=settings, algorithm=algorithm, model=model, seed=seed)
