"""Openings of a sentence to be continued: `Today I saw a rainy day and it was`.

For: the shipped `smollm2-sentiment` run, where a lexicon rewards friendly continuations. There are no right answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from producers.prompt_sources.base import SourcePrompt

TOPICS = (
    "a rainy day", "a cat", "the bus", "my homework", "a broken window", "an old house", "the sea", "my neighbour", "a long queue",
    "the office", "winter", "a lost key", "the traffic", "an exam", "a hospital", "the news", "a small dog", "an empty street",
    "the kitchen", "a new book", "my old school", "the market", "a train", "a cloudy sky",
)  # fmt: skip
HELD_OUT = ("a bridge", "the garden", "a black coffee", "my brother", "the museum", "a wet coat", "an old film", "the river")
OPENINGS = ("Today I saw {} and it was", "Yesterday I thought about {} and felt", "We talked about {} and everyone was")


class Sentiment:
    size = len(TOPICS) * len(OPENINGS)

    def __init__(self, *, seed: int, name: str = "sentiment") -> None:
        self.seed, self.name = seed, name

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        places = list(range(self.size))
        random.Random(f"{self.seed}/{pass_number}").shuffle(places)
        topic, opening = divmod(places[index], len(OPENINGS))
        return SourcePrompt(text=OPENINGS[opening].format(TOPICS[topic]))

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        every = [opening.format(topic) for topic in HELD_OUT for opening in OPENINGS]
        return [SourcePrompt(text=text) for text in every[:size]]


def make(**options: object) -> Sentiment:
    return Sentiment(**options)  # type: ignore[arg-type]
