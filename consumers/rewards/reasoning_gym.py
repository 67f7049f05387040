"""The task's own scorer, 0 to 1. Some give a few hundredths to wrong answers: do not take reward > 0 for right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def scorer(task: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(task, size=1, seed=0)


def score(*, prompt: str, completion: str, answer: str, meta: Mapping[str, object]) -> float:
    entry = json.loads(str(meta["entry"]))
    return float(scorer(str(meta["task"])).score_answer(completion.strip(), entry))
