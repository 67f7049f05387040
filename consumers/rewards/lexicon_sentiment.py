"""How friendly the completion sounds by the VADER lexicon, −1 to 1 (Hutto & Gilbert 2014)."""

from __future__ import annotations


class LexiconSentiment:
    def __init__(self) -> None:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        self.analyzer = SentimentIntensityAnalyzer()

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: object) -> float:
        return float(self.analyzer.polarity_scores(completion)["compound"])
