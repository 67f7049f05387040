"""The sources of a run as one: prompts by cursor, by id, and held-out ones.

For: the feeder and the warm start. Not for: which source a cursor falls on (`mixture`), making sources by name (the
package), tokens, or admission.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from broker.errors import Misconfigured
from producers.mixture import Schedule
from producers.prompt_sources.base import PromptSource, SourcePrompt

EVALUATION = "eval"
"""First part of an evaluation group's id; no source may be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One prompt and where it came from; `id` is `source/pass/index`."""

    id: str
    task: str
    prompt: SourcePrompt


class Sources:
    """Sources in fixed shares; every prompt can be drawn again by its cursor or its id."""

    warm_start_offset = 1 << 40
    """Cursors from here on are the warm start's, which knows no passes: a run never meets them."""

    def __init__(self, sources: Sequence[PromptSource], weights: Sequence[float], passes: int | None = None) -> None:
        check_names([source.name for source in sources])
        self.sources = list(sources)
        self.by_name = {source.name: source for source in sources}
        sizes = [source.size for source in sources]
        self.schedule = Schedule(weights, sizes, passes)
        self.endless = Schedule(weights, sizes)

    @property
    def total(self) -> int | None:
        """Prompts in all passes together; None when they never end."""
        return self.schedule.total

    def ended(self, cursor: int) -> bool:
        """Whether no prompt is left at `cursor`."""
        return self.total is not None and cursor >= self.total

    def at(self, cursor: int) -> Drawn:
        """Raises IndexError behind the last prompt, Poison for data that cannot be read any more."""
        warm = cursor >= self.warm_start_offset
        place = (self.endless if warm else self.schedule).at(cursor)
        name = self.sources[place.source].name
        return self.of(f"{name}/{place.pass_number}/{place.index}")

    def of(self, group: str) -> Drawn:
        """The prompt of an id, as it was admitted. Raises Misconfigured for an id these sources do not give."""
        name, _, rest = group.partition("/")
        source, where = self.by_name.get(name), re.fullmatch(r"(\d+)/(\d+)", rest)
        size = source.size if source else None
        if source is None or where is None or (size is not None and int(where[2]) >= size):
            raise Misconfigured(
                f"group {group} is none of these sources' ({', '.join(self.by_name)}), so it cannot be admitted "
                "again; stopping; resume with the [prompts] and the data the run began with"
            )
        return Drawn(id=group, task=name, prompt=source.prompt(int(where[1]), int(where[2])))

    def held_out(self, size: int) -> list[Drawn]:
        """Exactly so many held-out prompts, of all sources in turn. Raises Misconfigured when there are not so many."""
        places = [self.endless.at(cursor) for cursor in range(size)]
        wanted = self.endless.given(size)
        kept = [source.held_out(count) if count else [] for source, count in zip(self.sources, wanted, strict=True)]
        for source, prompts, count in zip(self.sources, kept, wanted, strict=True):
            if len(prompts) < count:
                raise Misconfigured(
                    f"[prompts] eval.size = {size} needs {count} held-out prompts of {source.name}, which has "
                    f"{len(prompts)}; nothing was started; lower eval.size"
                )
        taken = [iter(prompts) for prompts in kept]
        names = [self.sources[place.source].name for place in places]
        return [
            Drawn(id=f"{name}/held_out/{number}", task=name, prompt=next(taken[place.source]))
            for number, (name, place) in enumerate(zip(names, places, strict=True))
        ]

    def read(self, cursor: int) -> dict[str, int]:
        """How many prompts of each source lie before `cursor`."""
        return dict(zip(self.by_name, self.schedule.given(cursor), strict=True))


def check_names(names: Sequence[str]) -> None:
    """Names are the first part of ids. Raises Misconfigured when one cannot be, or two are the same."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name == EVALUATION:
            raise Misconfigured(
                f'[prompts] name = "{name}" cannot stand in an id; nothing was started; use letters, digits, "_" or '
                f'"-" and not "{EVALUATION}"'
            )
    if len(set(names)) < len(names):
        raise Misconfigured(
            f"[prompts] source: two sources have the same name ({', '.join(names)}); nothing was started; give each "
            "its own `name`"
        )
