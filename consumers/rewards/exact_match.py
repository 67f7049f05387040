"""1 when the completion is the answer, up to surrounding white space, else 0."""

from __future__ import annotations


def exact_match(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    return float(completion.strip() == answer.strip())
