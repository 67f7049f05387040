"""Laws that hold whatever is tried in whatever order, and brokers that agree on random histories.

The seed is the test's parameter, and every failure prints the acts that led to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.broker_history import Cast, History, imbalance
from tests.contract.broker_world import MemoryWorld, World, redis_world

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("seed", range(4))
async def test_the_books_balance_whatever_is_tried(world: World, seed: int) -> None:
    cast = Cast(world=world)
    history = History(seed, [cast])
    await history.begin()
    acts: list[str] = []
    for _ in range(200):
        before = await cast.trainer.books()
        name, act = await history.draw()
        acts.append(f"{name} -> {await cast.play(act)}")
        after = await cast.trainer.books()
        told = f"seed {seed}, after\n" + "\n".join(acts)
        assert imbalance(await cast.facts()) == [], told
        if not name.startswith("restore"):
            assert after.tick > before.tick or after == before, told
    assert cast.known and cast.last_commit, "the history was too poor to show anything"


@pytest.mark.parametrize("seed", range(100, 110))
async def test_the_scripts_agree_with_the_transitions_on_random_histories(redis_folder: Path, seed: int) -> None:
    async with redis_world(redis_folder) as on_redis:
        casts = [Cast(world=MemoryWorld()), Cast(world=on_redis)]
        history = History(seed, casts)
        await history.begin()
        acts: list[str] = []
        for _ in range(150):
            name, act = await history.draw()
            acts.append(name)
            expected, heard = await history.all_play(act)
            told = f"seed {seed}, after\n" + "\n".join(acts)
            assert heard == expected, told
            assert await casts[1].facts() == await casts[0].facts(), told
