"""1 when the completion is the answer, up to surrounding white space, else 0."""

from __future__ import annotations


def exact_match(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    """Raises ValueError when the prompt has no answer: 0 would teach that everything is wrong."""
    if not answer:
        raise ValueError(f"the prompt {prompt[:40]!r} has no answer to compare with")
    return float(completion.strip() == answer.strip())
