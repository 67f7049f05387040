"""One finished group as its page shows it: each sibling's text in the pieces that were sampled, with their versions and
probabilities and its advantage.

For: JSON of a group. Not for: finding it (`broker.archive_index`) or colours (`page/`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from broker.archive import Closed
from broker.errors import TidemillError
from broker.messages import Group, Rollouts
from consumers.algorithms import create
from deploy.run_settings import RunSettings

BROKEN = "\ufffd"
"""What a decoder says of a part of a character."""

Decode = Callable[[Sequence[int]], str]


def group_facts(closed: Closed, folder: Path, settings: RunSettings) -> dict[str, Any]:
    group = closed.group
    facts: dict[str, Any] = {
        "group": group.id,
        "kind": group.kind,
        "task": group.prompt.task,
        "fate": closed.fate,
        "reason": closed.reason,
        "trained": closed.version,
        "at": closed.at,
        "by": closed.by,
        "floor": closed.entry.floor if closed.entry else None,
        "attempt": closed.entry.attempt if closed.entry else 0,
        "reward": group.reward,
        "prompt": group.prompt.text,
        "answer": group.prompt.answer,
        "temperature": group.prompt.temperature,
        "siblings": [],
    }
    if group.rollouts is not None:
        decode = decoder(folder / "model" / "tokenizer.json")
        advantages = advantages_of(closed, settings)
        facts["siblings"] = [
            sibling_facts(group, group.rollouts, index, advantages, decode) for index in range(group.prompt.size)
        ]
    return facts


def sibling_facts(
    group: Group, rollouts: Rollouts, index: int, advantages: list[float] | None, decode: Decode | None
) -> dict[str, Any]:
    part = rollouts.sibling(index)
    actions = rollouts.actions[part]
    is_text = decode is not None and actions.ndim == 1
    scores = group.scores
    return {
        "text": rollouts.texts[index],
        "pieces": pieces(actions.tolist(), decode) if is_text and decode else None,
        "tokens": len(actions),
        "finish": rollouts.finishes[index],
        "probabilities": [round(value, 3) for value in np.exp(rollouts.logprobs[part]).tolist()],
        "given": np.flatnonzero(rollouts.mask[part] == 0).tolist(),
        "spans": [row[1:] for row in rollouts.spans.tolist() if row[0] == index],
        "reward": None if scores is None else round(float(scores.rewards[index]), 4),
        "parts": {} if scores is None else {name: round(float(v[index]), 4) for name, v in scores.parts.items()},
        "advantage": None if advantages is None else advantages[index],
    }


def pieces(ids: Sequence[int], decode: Decode) -> list[str]:
    """The text of each token, as it reads after the one before; parts of a character come with its last part."""
    found: list[str] = []
    start = 0
    for place in range(len(ids)):
        before = ids[max(0, start - 1) : start]
        text = decode([*before, *ids[start : place + 1]])[len(decode(before)) if before else 0 :]
        if text.endswith(BROKEN) and place - start < 3 and place + 1 < len(ids):
            found.append("")
            continue
        found.append(text)
        start = place + 1
    return found


def advantages_of(closed: Closed, settings: RunSettings) -> list[float] | None:
    """As it was trained, else as the run's algorithm would say; None for a group without rewards."""
    scores = closed.group.scores
    if closed.advantages is not None:
        return [round(float(value), 4) for value in closed.advantages]
    if scores is None or closed.group.kind != "train":
        return None
    with contextlib.suppress(TidemillError, ImportError):
        return [round(float(value), 4) for value in create(settings.algorithm).advantages(scores.rewards)]
    return None


@lru_cache(maxsize=8)
def decoder(path: Path) -> Decode | None:
    """None for a model without a tokenizer, whose actions are no text."""
    if not path.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(path))
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)
