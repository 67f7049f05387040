"""Policies by name; a dotted path `module:class` is accepted wherever a name is."""

from __future__ import annotations

import sys
from pathlib import Path

from broker.registry import Named
from consumers.policies.base import Policy
from consumers.settings import Lora

POLICIES = {
    "causal_lm": "consumers.policies.causal_lm:CausalLm",
    "gaussian": "consumers.policies.gaussian:Gaussian",
}


def preload(name: str, folder: Path) -> None:
    """Import what `create` would. Raises Misconfigured for a name that leads to no policy."""
    policy = named(name).load(POLICIES)
    more = getattr(sys.modules[policy.__module__], "preload", None)
    if more is not None:
        more(folder)


def create(name: str, folder: Path, *, dtype: str, lora: Lora | None, seed: int, device: str) -> Policy:
    """The policy of a model folder. Raises Misconfigured for a name that leads to no policy."""
    return named(name).made(POLICIES, Policy, folder, dtype=dtype, lora=lora, seed=seed, device=device)


def named(name: str) -> Named:
    return Named(f'[train] options.policy = "{name}"', name)
