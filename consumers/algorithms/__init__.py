"""Algorithms by name; a dotted path `module:function` is accepted wherever a name is."""

from __future__ import annotations

from importlib import import_module

from broker.errors import Misconfigured
from consumers.algorithms.base import Algorithm
from consumers.settings import AlgorithmSection

ALGORITHMS = {
    "grpo": "consumers.algorithms.grpo:make",
    "dr_grpo": "consumers.algorithms.dr_grpo:make",
    "rloo": "consumers.algorithms.rloo:make",
}


def create(settings: AlgorithmSection) -> Algorithm:
    """The algorithm of these settings. Raises Misconfigured for a name that is neither listed nor importable."""
    path = ALGORITHMS.get(settings.name, settings.name)
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute or "make")(settings)
    except (ImportError, AttributeError) as error:
        raise Misconfigured(
            f'[algorithm] name = "{settings.name}": {error}; nothing was started; known: {", ".join(ALGORITHMS)}, or module:function'
        ) from error
