"""`[run] stop_when`: the sentence that says when a run has reached its goal.

For: reading the sentence once, at the start, and asking it at each evaluation. Not for: deciding what else ends a run.

    eval.accuracy >= 0.95          mean over all held-out prompts
    eval.accuracy.gcd > 0.5        over those of one task
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.errors import Misconfigured

GRAMMAR = re.compile(
    r"\s*eval\.accuracy(?:\.(?P<task>[\w-]+))?\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[-+]?\d+(\.\d*)?([eE][-+]?\d+)?)\s*"
)

SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """One comparison of one accuracy."""

    task: str
    """Empty for all tasks together."""
    sign: str
    bound: float

    def satisfied(self, accuracy: float, by_task: Mapping[str, float]) -> bool:
        """Whether an evaluation reaches the goal; a task that was not measured does not."""
        measured = by_task.get(self.task) if self.task else accuracy
        return measured is not None and SIGNS[self.sign](measured, self.bound)


def parse(text: str) -> StopRule | None:
    """The rule, or None for an empty text (train all steps). Raises Misconfigured with the grammar."""
    if not text.strip():
        return None
    match = GRAMMAR.fullmatch(text)
    if match is None:
        raise Misconfigured(
            f"[run] stop_when = {text!r} is not understood; nothing was started; "
            "write `eval.accuracy >= 0.95` (or `eval.accuracy.TASK`, with >=, >, <= or <), or leave it empty"
        )
    bound = float(match["bound"])
    if not 0 <= bound <= 1:
        raise Misconfigured(
            f"[run] stop_when = {text!r}: accuracies lie between 0 and 1, so {bound:g} says nothing; "
            "nothing was started; correct the bound"
        )
    return StopRule(task=match["task"] or "", sign=match["sign"], bound=bound)
