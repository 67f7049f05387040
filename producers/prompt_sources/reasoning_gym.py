"""Tasks of the reasoning-gym package, made on the spot; its own scorer is the reward of the same name.

For: more than a hundred kinds of problems whose answers can be checked. `meta` carries what the scorer needs: the
task, its options, and the entry as a Python literal (JSON would turn its tuples into lists, which some scorers do not
accept).

Options that are not named below go to the task (`max_terms`, …). A question that is measured on is never trained on,
even where a task has so few questions that they repeat. A few tasks (isomorphic_strings, knight_swap,
polynomial_multiplication, ransom_note) depend on Python's hash seed, so their prompts differ from process to process;
each is scored by its own entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from broker.errors import Misconfigured
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.rows import digest
from producers.prompt_sources.shuffle import Shuffle
from producers.prompt_sources.template import checked, filled

HELD_OUT_SEED = 1 << 30
"""Fixed, and far from any run's: entries are seeded by seed + place."""


class Questions:
    """A source of `size` entries; the first `held_out` of another seed are measured on."""

    def __init__(
        self, *, seed: int, name: str, task: str, size: int, held_out: int, template: str, options: dict[str, Any]
    ) -> None:
        self.name, self.task, self.size, self.options = name, task, size, options
        self.template = checked(template)
        self.entries = dataset(task, size=size, seed=seed, **options)
        self.kept = dataset(task, size=max(1, held_out), seed=HELD_OUT_SEED, **options)
        self.shuffle = Shuffle(size, seed=seed, name=name)
        self.held_out_size = held_out

    @cached_property
    def apart(self) -> dict[bytes, int]:
        """Digests of the questions that are measured on, and their places."""
        places = reversed(range(self.held_out_size))
        return {digest(str(self.kept[place]["question"])): place for place in places}

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        """A question that is measured on gives way to the next that is not."""
        first = self.shuffle.row(pass_number, index)
        for step in range(self.size):
            entry = self.entries[(first + step) % self.size]
            if digest(str(entry["question"])) not in self.apart:
                return self.ask(entry)
        raise Misconfigured(
            f"reasoning_gym task {self.task} has too few different questions to keep {self.held_out_size} of them "
            "back; stopping; lower eval.size, or give the task options that make it larger"
        )

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        return [self.ask(self.kept[place]) for place in range(min(size, self.held_out_size))]

    def ask(self, entry: dict[str, Any]) -> SourcePrompt:
        kept = {key: plain(entry[key]) for key in ("question", "answer", "metadata")}
        meta = {"task": self.task, "options": plain(self.options), "entry": repr(kept)}
        return SourcePrompt(text=filled(self.template, entry["question"]), answer=str(entry["answer"] or ""), meta=meta)


def plain(value: Any) -> Any:
    """The same value out of what a Python literal can say; other objects become their text."""
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(plain(each) for each in value)
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    return plain(value.item()) if hasattr(value, "item") else str(value)


def dataset(task: str, **options: Any) -> Any:
    """Raises Misconfigured when the package, the task or an option is unknown."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise Misconfigured(
            f"[prompts] source reasoning_gym: {error}; nothing was started; install the package reasoning-gym"
        ) from error
    if task not in DATASETS:
        near = difflib.get_close_matches(task, DATASETS, n=3)
        raise Misconfigured(
            f'[prompts] task = "{task}" is none of reasoning-gym\'s; nothing was started; '
            + (f"did you mean {' or '.join(near)}?" if near else "see reasoning_gym.factory.DATASETS")
        )
    try:
        return reasoning_gym.create_dataset(task, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise Misconfigured(
            f"[prompts] reasoning_gym task {task}: {error}; nothing was started; correct its options ({options})"
        ) from error


def make(
    *,
    seed: int,
    task: str,
    size: int = 10_000,
    name: str = "",
    template: str = "{prompt}",
    held_out: int = 0,
    **options: Any,
) -> Questions:
    return Questions(
        seed=seed, name=name or task, task=task, size=size, held_out=held_out, template=template, options=options
    )
