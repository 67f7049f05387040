"""How friendly the completion sounds by the VADER lexicon, −1 to 1 (Hutto & Gilbert 2014)."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def analyzer() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def lexicon_sentiment(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    return float(analyzer().polarity_scores(completion)["compound"])
