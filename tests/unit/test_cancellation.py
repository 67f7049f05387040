"""Loops that run side by side end together, even when what they wait in swallows a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from broker.cancellation import end, together
from broker.errors import Broken, Unavailable


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


async def fails(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def rides_over(error: Exception) -> None:
    """A loop whose own group fails in the moment in which its sibling does: it goes on."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(error))
    except* Unavailable:
        pass
    await asyncio.Event().wait()


async def test_a_loop_that_rides_over_its_own_failure_ends_with_the_sibling_that_failed_beside_it() -> None:
    gone = Unavailable("the server is gone")
    with pytest.raises(Unavailable):
        await asyncio.wait_for(together(rides_over(gone), fails(gone)), 5)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(together(rides_over(gone), rides_over(gone), fails(gone)), 5)


async def test_the_end_of_the_main_loop_ends_those_beside_it() -> None:
    beside = asyncio.Event()

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            beside.set()

    await asyncio.wait_for(together(asyncio.sleep(0), background(), deaf(1)), 5)
    assert beside.is_set()


async def test_of_two_failures_in_one_moment_the_one_that_must_stop_the_process_is_raised() -> None:
    with pytest.raises(Broken):
        await asyncio.wait_for(together(fails(Unavailable("gone")), fails(Broken("lost"))), 5)
