"""Engines by name; a dotted path `module:factory` is accepted wherever a name is.

For: building the engine a run asks for. Not for: which one `auto` means (`choice`), or any engine's own work.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from broker.registry import Named
from producers.engines.choice import Choice, choose

if TYPE_CHECKING:
    from producers.engines.base import Engine
    from producers.settings import RolloutSection

log = structlog.get_logger()

ENGINES = {
    "torch": "producers.engines.torch:make",
    "vllm": "producers.engines.vllm:make",
    "scripted": "producers.engines.scripted:make",
}
"""Name → factory `make(model_folder, settings, *, seed)` of an `EngineCore` or an `Engine`."""


def create(name: str, model_folder: Path, settings: RolloutSection, *, seed: int) -> Engine:
    """The engine of these settings; a core gets its thread. Raises Misconfigured for a name that leads to no engine."""
    from producers.engines.base import Engine, EngineCore
    from producers.engines.stepped import SteppedEngine

    choice = chosen(name, model_folder)
    log.info("engine", engine=choice.engine, reason=choice.reason)
    named = Named(f'[rollout] engine = "{name}"', choice.engine)
    made = named.called(ENGINES, model_folder=model_folder, settings=settings, seed=seed)
    if hasattr(made, "step"):
        return SteppedEngine(named.kept(made, EngineCore))
    return named.kept(made, Engine)


def chosen(name: str, model_folder: Path) -> Choice:
    """What `auto` means for this model on this machine, and why; any other name is itself."""
    if name != "auto":
        return Choice(name, "it was asked for")
    from producers.engines.surroundings import look

    return choose(look(model_folder))


def preload(name: str, model_folder: Path) -> None:
    """Import what `create` would, and load nothing. Raises Misconfigured for a name that leads to no engine."""
    make = factory(chosen(name, model_folder).engine)
    more = getattr(sys.modules[make.__module__], "preload", None)
    if more is not None:
        more()


def factory(name: str) -> Any:
    """A registered engine's, to be called with whatever is to be measured."""
    return Named(f'[rollout] engine = "{name}"', name).load(ENGINES)
