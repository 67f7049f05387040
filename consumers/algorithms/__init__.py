"""Algorithms by name; a dotted path `module:function` is accepted wherever a name is."""

from __future__ import annotations

from importlib import import_module

from broker.errors import Misconfigured
from consumers.algorithms.base import Algorithm
from consumers.settings import AlgorithmSection

ALGORITHMS = {
    "cispo": "consumers.algorithms.cispo:make",
    "dapo": "consumers.algorithms.dapo:make",
    "dr_grpo": "consumers.algorithms.dr_grpo:make",
    "grpo": "consumers.algorithms.grpo:make",
    "gspo": "consumers.algorithms.gspo:make",
    "reinforce": "consumers.algorithms.reinforce:make",
    "rloo": "consumers.algorithms.rloo:make",
}


def create(settings: AlgorithmSection) -> Algorithm:
    """The algorithm of these settings. Raises Misconfigured for a name that is neither listed nor importable."""
    module, _, attribute = ALGORITHMS.get(settings.name, settings.name).partition(":")
    try:
        make = getattr(import_module(module), attribute or "make")
    except (ImportError, AttributeError) as error:
        raise Misconfigured(
            f'[algorithm] name = "{settings.name}": {error}; nothing was started; known: {", ".join(ALGORITHMS)}, or '
            "module:function"
        ) from error
    return make(settings)
