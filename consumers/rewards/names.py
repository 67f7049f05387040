"""Rules and judges by name. A dotted path is accepted wherever a name is.

For: looking a name up; settings do. Not for: making anything of it. Imports nothing.
"""

from __future__ import annotations

REWARDS = {
    "exact_match": "consumers.rewards.exact_match:exact_match",
    "format": "consumers.rewards.format:Format",
    "length": "consumers.rewards.length:Length",
    "lexicon_sentiment": "consumers.rewards.lexicon_sentiment:LexiconSentiment",
    "reasoning_gym": "consumers.rewards.reasoning_gym:ReasoningGym",
    "scripted": "consumers.rewards.scripted:scripted",
}
"""Name → rule, see `base.Rule`."""

JUDGES = {
    "scripted_judge": "consumers.rewards.scripted_judge:ScriptedJudge",
}
"""Name → judge, see `base.Judge`. No name is in both tables."""
