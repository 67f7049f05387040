"""Rules by name, and the reward a run asks for; a dotted path `module:function` is accepted wherever a name is.

For: turning `[reward]` into a reward. Not for: scoring. Rules are imported by their worker processes only.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.errors import Misconfigured

if TYPE_CHECKING:
    from consumers.rewards.base import Reward
    from consumers.settings import RewardSection

REWARDS = {
    "exact_match": "consumers.rewards.exact_match:exact_match",
    "format": "consumers.rewards.format:Format",
    "length": "consumers.rewards.length:Length",
    "lexicon_sentiment": "consumers.rewards.lexicon_sentiment:LexiconSentiment",
    "reasoning_gym": "consumers.rewards.reasoning_gym:ReasoningGym",
    "scripted": "consumers.rewards.scripted:scripted",
}
"""Name → rule, see `base.Rule`."""


def create(settings: RewardSection) -> Reward:
    """The reward of `[reward]`, not started. Raises Misconfigured for a name that is neither listed nor a path."""
    from consumers.rewards.rule_pool import RulePool
    from consumers.rewards.rule_worker import Part
    from consumers.rewards.weighted import Weighted

    names = distinct(part.name for part in settings.parts)
    parts = [
        Part(name=name, path=path_of(part.name), options=dict(part.options))
        for name, part in zip(names, settings.parts, strict=True)
    ]
    pool = RulePool(parts, processes=settings.processes, timeout_s=settings.timeout_s)
    return Weighted(pool, {name: part.weight for name, part in zip(names, settings.parts, strict=True)})


def path_of(name: str) -> str:
    """Dotted path of a rule."""
    if name in REWARDS:
        return REWARDS[name]
    if not re.fullmatch(r"[\w.]+:\w+", name):
        near = difflib.get_close_matches(name, REWARDS, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(REWARDS)}, or module:function"
        raise Misconfigured(f'[reward] parts: there is no rule "{name}"; nothing was started; {hint}')
    return name


def distinct(names: Iterable[str]) -> list[str]:
    """Names of parts as metrics show them: a path's last word; a second one of the same name is NAME-2."""
    found: list[str] = []
    for name in names:
        word = name.rpartition(":")[2]
        alike = sum(other.partition("-")[0] == word for other in found)
        found.append(f"{word}-{alike + 1}" if alike else word)
    return found
