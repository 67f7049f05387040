"""What handlers have answered, taken together where that is worth a moment.

For: the consuming loop's settling (`consume`). Not for: what an answer does to a group (`outcomes`).

A settlement alone costs its reader, the server and the next reader a wake-up each, many times what one of a row costs.
So an answer waits for others: not when nothing else is in hand, and never long against the time it took to make, so
that it reaches the next stage at most that share later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from broker.messages import Delivery
from broker.outcomes import Outcome

SHARE = 0.1
"""Of the time an answer took, that it may wait for others. On `long-tail` (a group in hand takes 0.2 s) none trains 143
groups a second, 0.05 163, 0.1 187, 0.2 189."""
LONGEST_S = 0.02
"""However long it took: enough for several groups of a busy producer."""


class Answer(NamedTuple):
    """Of one handler."""

    delivery: Delivery
    outcome: Outcome | Exception
    """Or the error that ends the stay."""
    share_s: float
    """Seconds the group took of this process."""
    lasted_s: float
    """From the handler's begin to its answer."""


async def gathered(answers: asyncio.Queue[Answer], in_hand: Callable[[], int]) -> list[Answer]:
    """consumes: answers   produces: at least one
    waits for: a handler, then a moment for others   unblocked by: their answers, or time; `in_hand` counts groups whose
    answer is still to come or not settled yet
    """
    found = [await answers.get()]
    until = time.monotonic() + min(LONGEST_S, SHARE * found[0].lasted_s)
    while len(found) < in_hand() and (left := until - time.monotonic()) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                found.append(await answers.get())
    while not answers.empty():
        found.append(answers.get_nowait())
    return found
