"""Prompt sources by name; a dotted path `module:factory` is accepted wherever a name is.

For: turning `[prompts]` into sources. Not for: drawing from them (`sources`), or what a source promises (`base`).

>>> sources = create_sources(PromptsSection(source="addition"), seed=0)
>>> sources.at(7).id, sources.of("addition/0/7") == sources.at(7)
('addition/0/7', True)
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from broker.errors import Misconfigured
from broker.registry import Named
from producers.mixture import Schedule
from producers.prompt_sources.base import PromptSource
from producers.prompt_sources.sources import Sources
from producers.settings import PromptsSection

SOURCES = {
    "addition": "producers.prompt_sources.addition:make",
    "spelling": "producers.prompt_sources.spelling:make",
    "sentiment": "producers.prompt_sources.sentiment:make",
    "jsonl": "producers.prompt_sources.jsonl:make",
    "hf": "producers.prompt_sources.hf:make",
    "reasoning_gym": "producers.prompt_sources.reasoning_gym:make",
}
"""Name → factory; see `base`."""


def create_sources(settings: PromptsSection, *, seed: int) -> Sources:
    """The sources of `[prompts]`. Raises Misconfigured for what a person must change, before any prompt is given."""
    parts = listed(settings)
    weights = [part.pop("weight", 1) for part in parts]
    shares = Schedule(weights, [None] * len(parts)).given(settings.eval.size)
    sources = [create_source(part, seed, held_out) for part, held_out in zip(parts, shares, strict=True)]
    return Sources(sources, weights, settings.passes)


def listed(settings: PromptsSection) -> list[dict[str, Any]]:
    """One dictionary per source: `source`, `weight`, and its options."""
    if isinstance(settings.source, str):
        return [{"source": settings.source, **settings.options}]
    if settings.options or not all(part.get("source") for part in settings.source):
        raise Misconfigured(
            "[prompts] source is a list: each entry needs its own `source`, and its options beside it instead of in "
            '[prompts] options; nothing was started; write { source = "jsonl", path = "…", weight = 2 }'
        )
    return [dict(part) for part in settings.source]


def create_source(options: Mapping[str, Any], seed: int, held_out: int) -> PromptSource:
    """One source. Raises Misconfigured for an unknown name or option."""
    name = str(options["source"])
    given = {key: value for key, value in options.items() if key != "source"}
    named = Named(f'[prompts] source = "{name}"', name)
    make = named.load(SOURCES)
    parameters = inspect.signature(make).parameters
    if "held_out" in parameters:
        given.setdefault("held_out", held_out)
    check_options(name, given, parameters)
    return named.kept(make(seed=seed, **given), PromptSource)


def check_options(name: str, given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raises Misconfigured for an option the factory does not take, and for one it needs and does not get."""
    kinds = [parameter.kind for parameter in parameters.values()]
    known = [key for key in parameters if key != "seed"]
    for key in given:
        if key not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known options: {', '.join(known)}"
            raise Misconfigured(f'[prompts] source = "{name}" has no option "{key}"; nothing was started; {hint}')
    for key, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        if required and key != "seed" and key not in given:
            raise Misconfigured(
                f'[prompts] source = "{name}" needs the option "{key}"; nothing was started; add it to [prompts] '
                "options"
            )
