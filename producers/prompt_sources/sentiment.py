"""Openings of a sentence to be continued: `Today I saw a rainy day and it was`.

For: the shipped `smollm2-sentiment` run, where a lexicon rewards friendly continuations. There are no right answers.
Topics that are measured on are never trained on, in whatever opening.
"""

from __future__ import annotations

from collections.abc import Sequence

from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.shuffle import Shuffle

# fmt: off
TOPICS = (
    "a rainy day", "a cat", "the bus", "my homework", "a broken window", "an old house", "the sea", "my neighbour",
    "a long queue", "the office", "winter", "a lost key", "the traffic", "an exam", "a hospital", "the news",
    "a small dog", "an empty street", "the kitchen", "a new book", "my old school", "the market", "a train",
    "a cloudy sky",
)
HELD_OUT = (
    "a bridge", "the garden", "a black coffee", "my brother", "the museum", "a wet coat", "an old film", "the river",
    "a letter", "the station", "my first car", "a tall tree",
)
# fmt: on
OPENINGS = ("Today I saw {} and it was", "Yesterday I thought about {} and felt", "We talked about {} and everyone was")


def openings(topics: Sequence[str]) -> list[str]:
    """Every opening about every topic, all topics once before any comes again."""
    return [opening.format(topic) for opening in OPENINGS for topic in topics]


class Sentiment:
    def __init__(self, *, seed: int, name: str) -> None:
        self.name = name
        self.texts = openings(TOPICS)
        self.size = len(self.texts)
        self.shuffle = Shuffle(self.size, seed=seed, name=name)

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        return SourcePrompt(text=self.texts[self.shuffle.row(pass_number, index)])

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        return [SourcePrompt(text=text) for text in openings(HELD_OUT)[:size]]


def make(*, seed: int, name: str = "sentiment") -> Sentiment:
    return Sentiment(seed=seed, name=name)
