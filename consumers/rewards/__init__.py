"""Rules by name, and the reward made of weighted parts; a dotted path `module:function` is accepted as a rule."""

from __future__ import annotations

from consumers.rewards.base import Reward
from consumers.rewards.rule_pool import RulePool
from consumers.settings import RewardSection

REWARDS = {
    "exact_match": "consumers.rewards.exact_match:exact_match",
    "format": "consumers.rewards.format:matches",
    "length": "consumers.rewards.length:length",
    "lexicon_sentiment": "consumers.rewards.lexicon_sentiment:lexicon_sentiment",
    "reasoning_gym": "consumers.rewards.reasoning_gym:score",
    "scripted": "consumers.rewards.scripted:scripted",
}


def create(settings: RewardSection) -> Reward:
    """The reward of `[reward]`. Raises Misconfigured for a rule that is neither listed nor importable."""
    parts = [(part.name, REWARDS.get(part.name, part.name), part.weight, dict(part.options)) for part in settings.parts]
    return RulePool(parts, processes=settings.processes, timeout_s=settings.timeout_s)
