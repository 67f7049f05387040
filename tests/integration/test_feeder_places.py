"""How the feeder hears of free places: cheaply while there are none, and at once when a version frees some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from broker.contract import Admission
from broker.memory_broker import MemoryBroker
from broker.messages import Group
from broker.outcomes import Retire
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from producers import feeder
from tests.contract.broker_world import MemoryWorld, open_run, pass_on, state, step, take
from tests.integration.test_feeder import Run, fed, make_run

pytestmark = pytest.mark.timeout(60)
__all__ = ["make_run"]


class CountingBroker(MemoryBroker):
    """Keeps how many groups each question for a place carried."""

    def __init__(self, world: MemoryWorld, offers: list[int]) -> None:
        super().__init__(world.server)
        self.offers = offers

    async def admit(self, expected: int, cursor_value: str, groups: Sequence[Group]) -> Admission:
        self.offers.append(len(groups))
        return await super().admit(expected, cursor_value, groups)


class CountedWorld(MemoryWorld):
    def __init__(self) -> None:
        super().__init__()
        self.offers = list[int]()

    async def connect(self) -> CountingBroker:
        return CountingBroker(self, self.offers)


async def test_a_full_open_set_is_asked_for_a_place_without_a_group(make_run: Callable[..., Run]) -> None:
    world = CountedWorld()
    trainer = await open_run(world, cap=3)
    async with fed(world, make_run(source="addition")):
        await state(lambda: world.offers.count(0) >= 3)
        (one,) = await take(trainer, PROMPTS, "rollout", 1)
        assert await trainer.settle("rollout", [(one, Retire(reason="no_signal"))]) == ["done"]
        await state(lambda: world.server.run.cursor == 4 and world.offers[-1] == 0)
    offered = [number for number in world.offers if number]
    assert offered == [1, 2, 1, 1, 1], "a place, the other two, none; then the one that came free, and none again"


async def test_the_places_that_a_version_frees_are_filled_at_once(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "POLL_S", 600.0)
    world = MemoryWorld()
    trainer = await open_run(world, cap=2, groups=1)
    async with fed(world, make_run(source="addition")):
        await state(lambda: world.server.run.cursor == 2)
        await pass_on(trainer, "rollout", await take(trainer, PROMPTS, "rollout", 1))
        await pass_on(trainer, "reward", await take(trainer, ROLLOUTS, "reward", 1))
        scored = await take(trainer, SCORED, "trainer", 1)
        await trainer.commit(*step(1, scored), scored)
        await state(lambda: world.server.run.cursor == 3)
