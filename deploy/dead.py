"""What a person decides about buried groups: try them again, or give them up.

For: `tidemill inspect dead replay|drop`. Not for: what that means (`broker.operator_contract`), or listing
(`inspection`).
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.errors import Misconfigured
from broker.operator_contract import DeadGroup, DeadVerdict
from broker.redis_operator import RedisOperator

ENTER_S = 5.0
AGAIN_S = 0.005
"""Places below the cap are taken by the feeder 20 ms after they get free: whoever asks more often gets one."""
AT_ONCE = 64

MEANS: dict[str, dict[DeadVerdict, str]] = {
    "replay": {
        "done": "at prompts again",
        "gone": "no longer buried, or its prompt is lost",
        "open": "open again already",
        "full": "no place below the cap came free; stays buried; try again, or wait longer (--wait)",
        "measured": "an evaluation group: its version was measured without it; drop it",
        "finished": "the run is over: nobody works any more; stays buried",
        "forgotten": "the server lost data since; it may have been tried again and trained meanwhile; drop it",
    },
    "drop": {"done": "retired as dropped", "gone": "no longer buried", "open": "open again: nothing was done"},
}
"""What each answer means to a person."""


async def decide(url: str, run: str, verb: str, groups: Sequence[str], wait_s: float) -> list[dict[str, Any]]:
    """One row per line of `dead`; `groups` empty for all. Raises Misconfigured for a group that is not buried,
    Unavailable when nobody runs the run.
    """
    operator = await RedisOperator.connect(url, run)
    try:
        await operator.enter(timeout_s=ENTER_S)
        lines = chosen(await operator.dead(), groups)
        verdicts = await (revived(operator, lines, wait_s) if verb == "replay" else in_parts(operator.drop, lines))
    finally:
        await operator.close()
    return [
        {"group": line.entry.group, "answer": verdict, "meaning": MEANS[verb][verdict], "was buried for": line.reason}
        for line, verdict in zip(lines, verdicts, strict=True)
    ]


def chosen(lines: Sequence[DeadGroup], groups: Sequence[str]) -> list[DeadGroup]:
    """Raises Misconfigured when one of the groups is not buried: nothing is done then."""
    buried = [line.entry.group for line in lines]
    strangers = [group for group in groups if group not in buried]
    if strangers:
        near = difflib.get_close_matches(strangers[0], buried, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "`tidemill inspect dead` lists those that are"
        raise Misconfigured(f"{', '.join(strangers)}: not buried ({len(buried)} are); nothing was done; {hint}")
    return [line for line in lines if not groups or line.entry.group in groups]


async def in_parts(
    ask: Callable[[Sequence[DeadGroup]], Awaitable[list[DeadVerdict]]], lines: Sequence[DeadGroup]
) -> list[DeadVerdict]:
    found: list[DeadVerdict] = []
    for start in range(0, len(lines), AT_ONCE):
        found += await ask(lines[start : start + AT_ONCE])
    return found


async def revived(operator: RedisOperator, lines: Sequence[DeadGroup], wait_s: float) -> list[DeadVerdict]:
    """consumes: lines of `dead`   produces: open groups   waits for: places below the cap   unblocked by: groups that
    close, or `wait_s`
    """
    deadline = time.monotonic() + wait_s
    verdicts: dict[str, DeadVerdict] = {}
    at_once = AT_ONCE
    while left := [line for line in lines if verdicts.get(line.id, "full") == "full"]:
        answers = await operator.revive(left[:at_once])
        verdicts |= {line.id: verdict for line, verdict in zip(left, answers, strict=False)}
        at_once = 1 if "full" in answers else AT_ONCE  # one is enough to hear of a free place
        if "full" in answers:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(AGAIN_S)
    return [verdicts.get(line.id, "full") for line in lines]
