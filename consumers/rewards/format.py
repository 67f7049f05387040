"""1 when the whole completion matches a regular expression, else 0."""

from __future__ import annotations

import re


def matches(*, prompt: str, completion: str, answer: str, meta: object, pattern: str = r"[\s\S]*") -> float:
    return float(re.fullmatch(pattern, completion) is not None)
