"""A task is ended even when what it waits in swallows a cancellation."""

from __future__ import annotations

import asyncio

from broker.cancellation import end


async def deaf(times: int) -> None:
    """Goes on after so many cancellations, as a client does that takes one for its own time-out."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


async def test_a_task_that_swallows_a_cancellation_is_ended_all_the_same() -> None:
    tasks = [asyncio.create_task(deaf(times)) for times in (0, 1, 2)]
    await asyncio.sleep(0)
    await asyncio.wait_for(end(tasks), 5)
    assert all(task.cancelled() for task in tasks)


async def test_a_task_that_is_done_already_is_left_alone() -> None:
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    await asyncio.wait_for(end([done]), 5)
    assert not done.cancelled()
