"""Running loops side by side, and ending background tasks for certain.

For: every loop that runs beside another and is ended by it. Not for: draining work (`consume`).

A task group does not do here. It cancels its body once, and one cancellation is not enough: a client library may take
it for a time-out of its own and go on (seen with a blocking stream read that ended in the same moment), and a nested
group that is just failing drops it. So cancelling is repeated until the task is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from broker.errors import Reset, Transient

AGAIN_S = 0.2


async def together(main: Coroutine[Any, Any, None], *background: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end beside loops that never end; the first failure ends all and is raised.

    Of several failures in one moment the one that the caller cannot ride over is raised.
    """
    tasks = [asyncio.ensure_future(one) for one in (main, *background)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    failures = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    for error in sorted(failures, key=lambda error: isinstance(error, Reset | Transient)):
        raise error


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """consumes: tasks   produces: ended ones   waits for: each to notice   unblocked by: cancelling it again

    What they raise stays with them: whoever awaits one hears of it.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
