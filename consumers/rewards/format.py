"""1 when the whole completion matches a regular expression, else 0."""

from __future__ import annotations

import re


class Format:
    """`pattern` must match from the first to the last character; `.` matches line ends too."""

    def __init__(self, *, pattern: str) -> None:
        self.pattern = re.compile(pattern, re.DOTALL)

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: object) -> float:
        return float(self.pattern.fullmatch(completion) is not None)
