"""Ending background tasks for certain.

For: every loop that runs beside another and is ended by it. Not for: draining work (`consume`). One cancellation is not
enough: a client library may take it for a time-out of its own and go on (seen with a blocking stream read that ended in
the same moment), so it is repeated until the task is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """consumes: tasks   produces: ended ones   waits for: each to notice   unblocked by: cancelling it again

    What they raise stays with them: a task group, or whoever awaits one, hears of it.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
