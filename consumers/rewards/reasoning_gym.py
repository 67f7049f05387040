"""The task's own scorer, 0 to 1, for prompts of the source of the same name.

Some scorers give a few hundredths to wrong answers: do not take reward > 0 for right. A completion that a scorer cannot
even read (it raises) is a wrong answer, provided that it reads the right one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


class ReasoningGym:
    """`tag`: what counts is the text in the completion's last <tag>…</tag>, all of it without; empty: the whole
    text."""

    def __init__(self, *, tag: str = "") -> None:
        import reasoning_gym

        self.create = reasoning_gym.create_dataset
        self.tag = tag
        self.task = lru_cache(maxsize=64)(self.made)
        self.entry = lru_cache(maxsize=8)(ast.literal_eval)

    def made(self, task: str, options: str) -> Any:
        """`options` are a Python literal, so that they can be remembered."""
        return self.create(task, size=1, seed=0, **ast.literal_eval(options))

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: Mapping[str, Any]) -> float:
        if "entry" not in meta:
            raise ValueError("the prompt carries no reasoning-gym entry; use the source reasoning_gym with this rule")
        task = self.task(meta["task"], repr(meta["options"]))
        entry = self.entry(meta["entry"])
        try:
            return float(task.score_answer(self.answer_in(completion), entry))
        except Exception:  # noqa: BLE001 - whatever a scorer raises about a text it cannot read
            task.score_answer(entry["answer"], entry)  # raises when the scorer itself is at fault
            return 0.0

    def answer_in(self, completion: str) -> str:
        if not self.tag:
            return completion.strip()
        begin = completion.rpartition(f"<{self.tag}>")[2]
        return begin.partition(f"</{self.tag}>")[0].strip()
