"""Prompt sources by name, and the mixture the feeder draws from.

For: turning `[prompts]` into prompts by cursor and by id. Not for: tokens or admission.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from broker.errors import Misconfigured
from producers.mixture import Places
from producers.prompt_sources.base import PromptSource, SourcePrompt
from producers.settings import PromptsSection

SOURCES = {
    "addition": "producers.prompt_sources.addition:make",
    "spelling": "producers.prompt_sources.spelling:make",
    "sentiment": "producers.prompt_sources.sentiment:make",
    "jsonl": "producers.prompt_sources.jsonl:make",
    "hf": "producers.prompt_sources.hf:make",
    "reasoning_gym": "producers.prompt_sources.reasoning_gym:make",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One prompt and where it came from; `id` is `source/pass/index`."""

    id: str
    task: str
    prompt: SourcePrompt


class Mixture:
    """Sources in fixed shares; every prompt can be drawn again by its cursor or its id."""

    def __init__(self, sources: Sequence[PromptSource], weights: Sequence[float], passes: int | None) -> None:
        self.sources = {source.name: source for source in sources}
        self.order = list(sources)
        self.places = Places(weights)
        self.passes = passes
        if len(self.sources) != len(sources):
            raise Misconfigured("[prompts] source: two sources have the same name; nothing was started; give each its own `name`")
        if passes and any(source.size is None for source in sources):
            raise Misconfigured(f"[prompts] passes = {passes}, but a source is endless; nothing was started; remove passes or the source")

    warm_start_offset = 1 << 40
    """The warm start draws from so far behind that a run never meets the same cursors."""

    @property
    def size(self) -> int | None:
        """Prompts in all passes together; None when they never end."""
        if self.passes is None:
            return None
        cursor = 0
        while not self.ended(cursor):
            cursor += 1
        return cursor

    def ended(self, cursor: int) -> bool:
        """Whether the source whose turn it is has had all its passes: exact epochs end at the first such place."""
        source, taken = self.places.at(cursor)
        size = self.order[source].size
        return self.passes is not None and size is not None and taken >= size * self.passes

    def at(self, cursor: int) -> Drawn:
        place, taken = self.places.at(cursor)
        source = self.order[place]
        pass_number, index = divmod(taken, source.size) if source.size else (0, taken)
        return Drawn(id=f"{source.name}/{pass_number}/{index}", task=source.name, prompt=source.prompt(pass_number, index))

    def of(self, group: str) -> Drawn:
        """The prompt of an id, as it was admitted."""
        name, pass_number, index = group.rsplit("/", 2)
        return Drawn(id=group, task=name, prompt=self.sources[name].prompt(int(pass_number), int(index)))

    def held_out(self, size: int) -> list[Drawn]:
        """Held-out prompts of all sources in turn, up to `size`."""
        share = -(-size // len(self.order))
        columns = [[(source.name, one) for one in source.held_out(share)] for source in self.order]
        mixed = [column[row] for row in range(share) for column in columns if row < len(column)]
        return [Drawn(id=f"{name}/held_out/{place}", task=name, prompt=one) for place, (name, one) in enumerate(mixed[:size])]


def create_sources(settings: PromptsSection, *, seed: int) -> Mixture:
    """The mixture of `[prompts]`. Raises Misconfigured for a source that is neither listed nor importable."""
    listed = settings.source
    parts: list[dict[str, Any]] = [{"source": listed, **settings.options}] if isinstance(listed, str) else [dict(part) for part in listed]
    weights = [float(part.pop("weight", 1.0)) for part in parts]
    return Mixture([create_source(part, seed) for part in parts], weights, settings.passes)


def create_source(part: dict[str, Any], seed: int) -> PromptSource:
    name = str(part.pop("source"))
    module, _, attribute = SOURCES.get(name, name).partition(":")
    try:
        make = getattr(import_module(module), attribute or "make")
    except (ImportError, AttributeError) as error:
        raise Misconfigured(
            f'[prompts] source = "{name}": {error}; nothing was started; known: {", ".join(SOURCES)}, or module:factory'
        ) from error
    try:
        return make(seed=seed, **part)
    except TypeError as error:
        raise Misconfigured(f'[prompts] source = "{name}": {error}; nothing was started; see `docs/extending.md` for its options') from error
