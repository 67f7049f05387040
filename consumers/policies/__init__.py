"""Policies by name; a dotted path `module:class` is accepted wherever a name is."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from broker.errors import Misconfigured
from consumers.policies.base import Policy
from consumers.settings import Lora

POLICIES = {
    "causal_lm": "consumers.policies.causal_lm:CausalLm",
    "gaussian": "consumers.policies.gaussian:Gaussian",
}


def create(name: str, folder: Path, *, dtype: str, lora: Lora | None, seed: int, device: str) -> Policy:
    """The policy of a model folder. Raises Misconfigured for a name that is neither listed nor importable."""
    module, _, attribute = POLICIES.get(name, name).partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Misconfigured(
            f'[train] options.policy = "{name}": {error}; nothing was started; known: {", ".join(POLICIES)}, '
            "or module:class"
        ) from error
    return kind(folder, dtype=dtype, lora=lora, seed=seed, device=device)
