"""Algorithms by name; a dotted path `module:function` is accepted wherever a name is."""

from __future__ import annotations

from broker.registry import Named
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
    """The algorithm of these settings. Raises Misconfigured for a name that leads to no algorithm."""
    return Named(f'[algorithm] name = "{settings.name}"', settings.name).made(ALGORITHMS, Algorithm, settings)
