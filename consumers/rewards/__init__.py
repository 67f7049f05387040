"""Rules and judges by name, and the reward a run asks for; a dotted path is accepted wherever a name is.

For: turning `[reward]` into a reward. Not for: scoring. Rules are imported by their worker processes only, judges by
the `judge` role only.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.errors import Misconfigured
from broker.registry import Named
from consumers.rewards.names import JUDGES, REWARDS

if TYPE_CHECKING:
    from consumers.rewards.judged import Judged
    from consumers.rewards.rule_pool import RulePool
    from consumers.rewards.weighted import Weighted
    from consumers.settings import RewardPart, RewardSection

    NamedPart = tuple[str, RewardPart]
    """A part under the name that metrics show."""


def create(settings: RewardSection) -> Weighted:
    """The reward of `[reward]`, not started; its judges are made now. Raises Misconfigured for a name that is neither
    listed nor a path, and for a judge that cannot be made.
    """
    from consumers.rewards.weighted import Weighted

    parts, rules = named_parts(settings), rules_of(settings)
    judges = [judge_of(one) for one in parts if one[1].on == "slot"]
    weights = {name: part.weight for name, part in parts}
    return Weighted([*([rules] if rules else []), *judges], weights, settings.capacity)


def preload(settings: RewardSection) -> None:
    """Import the judges, as `create` would, and make none. Raises Misconfigured for a name that leads to no judge."""
    for part in settings.parts:
        if part.on == "slot":
            judge_named(part).load(JUDGES)


def named_parts(settings: RewardSection) -> list[NamedPart]:
    return list(zip(distinct(part.name for part in settings.parts), settings.parts, strict=True))


def rules_of(settings: RewardSection) -> RulePool | None:
    """The rules among the parts, not started; None where all are judges. Raises Misconfigured for an unknown name."""
    from consumers.rewards.rule_pool import RulePool
    from consumers.rewards.rule_worker import Part

    rules = [(name, part) for name, part in named_parts(settings) if part.on == "cpu"]
    if not rules:
        return None
    parts = [Part(name=name, path=path_of(part.name), options=dict(part.options)) for name, part in rules]
    return RulePool(parts, processes=settings.processes, timeout_s=settings.timeout_s, capacity=settings.capacity)


def judge_of(one: NamedPart) -> Judged:
    """A judge, made. Raises Misconfigured."""
    from consumers.rewards.base import Judge
    from consumers.rewards.judged import Judged

    name, part = one
    return Judged(name, judge_named(part).made(JUDGES, Judge, **part.options))


def judge_named(part: RewardPart) -> Named:
    return Named(f'[reward] parts: "{part.name}"', part.name)


def path_of(name: str) -> str:
    """Dotted path of a rule."""
    if name in REWARDS:
        return REWARDS[name]
    if not re.fullmatch(r"[\w.]+:\w+", name):
        near = difflib.get_close_matches(name, [*REWARDS, *JUDGES], n=1)
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
