"""Groups of a wanted size in bytes, shaped like those that really flow: eight siblings, token actions, one reward.

For: what `broker` sends. Not for: sending it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from broker import codec
from broker.messages import Group, Prompt, Rollouts, Scores

SIBLINGS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What each stage adds."""

    prompt: Prompt
    rollouts: Rollouts
    scores: Scores

    @property
    def bytes(self) -> int:
        """Of the whole body on the server, names included."""
        prompt = codec.encode_prompt(Group(id="bench", kind="train", prompt=self.prompt))
        fields = prompt | codec.encode_rollouts(self.rollouts) | codec.encode_scores(self.scores)
        return codec.size_of(fields)


def parts_of(size: int) -> Parts:
    """A body of about `size` bytes: as many actions per sibling as that takes, at least one."""
    one, two = with_actions(1).bytes, with_actions(2).bytes
    return with_actions(max(1, 1 + round((size - one) / (two - one))))


def with_actions(each: int) -> Parts:
    """Every sibling of so many actions, three characters an action."""
    number = SIBLINGS * each
    draw = np.random.default_rng(0)
    rewards = draw.integers(0, 2, SIBLINGS).astype(np.float32)
    return Parts(
        prompt=Prompt(
            text="12+34=", actions=np.arange(7, dtype=np.int32), size=SIBLINGS, seed=7, task="addition", answer="640"
        ),
        rollouts=Rollouts(
            texts=("abc" * each,) * SIBLINGS,
            actions=draw.integers(0, 64, number).astype(np.int32),
            offsets=np.arange(0, number + 1, each, dtype=np.int32),
            logprobs=-draw.random(number).astype(np.float32),
            mask=np.ones(number, np.uint8),
            spans=np.array([(sibling, 0, each, 0) for sibling in range(SIBLINGS)], np.int32),
            finishes=("stop",) * SIBLINGS,
        ),
        scores=Scores(rewards=rewards, parts={"exact_match": rewards}),
    )
