"""The ranks beyond 0 as processes: children of the trainer, which is rank 0, for one attempt together.

For: starting them, noticing that one is lost, ending them. Not for: what they do (`ranks`) or how they meet (`gang`).

An attempt has a meeting place and processes of its own. When a rank is lost the trainer leaves with what that means,
and its next start makes a new attempt, which replays: a gang is never mended. The ranks are of the trainer's process
group and die with it, `kill -9` included, so none is ever left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from broker.cancellation import end
from broker.errors import Broken, Misconfigured, TidemillError, Transient
from broker.lifeline import tied_to_this_process
from broker.role_process import leave, report

NOTICE_S = 2.0
"""A broken collective is heard of a moment before the end of the process that broke it, which says more."""

SETTLE_S = 0.2
"""The rank that was lost takes others with it; whoever is seen first is not always the cause."""


class LostRank(TidemillError):
    """A rank died without a reason of its own: a crash of the trainer, given up when it happens again and again."""


@contextlib.asynccontextmanager
async def ranks_beside(folder: Path, size: int) -> AsyncGenerator[None]:
    """Ranks 1 to `size` - 1 of the run in `folder` live while the block runs.

    When one is lost this process ends there and then with what that means: rank 0 may stand inside a collective, where
    no exception reaches it.
    """
    if size == 1:
        yield
        return
    from consumers.learners.gang import meeting_place

    place = await asyncio.to_thread(meeting_place)
    ranks = {rank: await start(folder, rank, size) for rank in range(1, size)}
    watching = asyncio.create_task(watch(ranks, folder))
    try:
        yield
    except (Transient, RuntimeError):
        await asyncio.wait((watching,), timeout=NOTICE_S)
        raise
    finally:
        await end((watching,))
        await kill(ranks)
        del place  # until here: what the ranks wait for is served by it


async def start(folder: Path, rank: int, size: int) -> Process:
    """Called from the thread that lives as long as this process: the kernel ties the child's life to it."""
    name = f"rank-{rank}"
    with output_of(folder, rank).open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "consumers", "rank", "--run", str(folder), "--name", name),
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            preexec_fn=tied_to_this_process(),
        )


async def watch(ranks: Mapping[int, Process], folder: Path) -> None:
    """consumes: ends of ranks   produces: the end of this process
    waits for: a rank that leaves without having been told to   unblocked by: it
    """
    for ended in asyncio.as_completed([process.wait() for process in ranks.values()]):
        if await ended:
            await asyncio.sleep(SETTLE_S)
            leave(report(loss(ranks, folder)))


def loss(ranks: Mapping[int, Process], folder: Path) -> TidemillError:
    """What the end of these ranks means for the trainer."""
    codes = {rank: process.returncode for rank, process in ranks.items() if process.returncode}
    rank = min(codes, key=lambda rank: codes[rank] == Transient.exit_code)
    kinds = {kind.exit_code: kind for kind in (Misconfigured, Broken, Transient)}
    return kinds.get(codes[rank], LostRank)(
        f"rank {rank} (process {ranks[rank].pid}) {in_words(codes[rank])}; the trainer leaves with all its ranks, and "
        f"they replay when they are started again; see {output_of(folder, rank)}"
    )


def in_words(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"


def output_of(folder: Path, rank: int) -> Path:
    return folder / "logs" / f"rank-{rank}.err"


async def kill(ranks: Mapping[int, Process]) -> None:
    for process in ranks.values():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
