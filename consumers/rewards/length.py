"""How close the completion's length is to a target, in characters: 1 at the target, 0 at twice its distance from nothing."""

from __future__ import annotations


def length(*, prompt: str, completion: str, answer: str, meta: object, target: int = 100) -> float:
    return max(0.0, 1.0 - abs(len(completion) - target) / target)
