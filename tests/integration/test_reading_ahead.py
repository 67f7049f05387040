"""Which batch a trainer takes up while a step is under way, on a run in memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.errors import Refused
from broker.messages import Delivery
from broker.telemetry import Meter
from consumers.batching import Batch
from consumers.hand import Hand
from consumers.settings import TrainSection
from tests.contract.broker_world import MemoryWorld, open_run, score

pytestmark = pytest.mark.timeout(30)
GROUPS, STALENESS = 2, 1


async def hand_of(world: MemoryWorld) -> tuple[Hand, list[Delivery]]:
    """A run with two batches that were scored and read."""
    broker = cast("Any", await open_run(world, groups=GROUPS, staleness=STALENESS, cap=6))
    scored = await score(world, 2 * GROUPS)
    held = {one.entry.group: one for one in scored}
    return Hand(broker, TrainSection(groups=GROUPS, staleness=STALENESS), 6, Meter(), held=held), scored


def names(deliveries: Any) -> list[str]:
    return [one.entry.group for one in deliveries]


async def test_the_batch_after_the_one_in_training_is_taken_and_none_of_that_one() -> None:
    hand, scored = await hand_of(MemoryWorld())
    found = await hand.ahead(1, names(scored[:GROUPS]))
    assert isinstance(found, Batch) and names(found.deliveries) == names(scored[GROUPS:])


async def test_less_than_a_batch_is_waited_for_and_the_books_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, scored = await hand_of(MemoryWorld())
    hand.drop(scored[-1:])

    async def books() -> Any:
        raise Refused("there was no need to ask")

    monkeypatch.setattr(hand.broker, "books", books)
    assert await hand.ahead(1, names(scored[:GROUPS])) is None


async def test_what_would_be_too_stale_for_the_next_step_is_not_taken_ahead_and_stays_in_hand() -> None:
    hand, scored = await hand_of(MemoryWorld())
    assert await hand.ahead(1 + STALENESS, names(scored[:GROUPS])) is None
    assert list(hand.held) == names(scored)


async def test_the_same_question_is_asked_again_only_when_something_new_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, asked = MemoryWorld(), list[int]()
    hand, scored = await hand_of(world)
    books, training = hand.broker.books, names(scored[:GROUPS])

    async def counted() -> Any:
        asked.append(1)
        return await books()

    monkeypatch.setattr(hand.broker, "books", counted)
    for _ in range(3):
        assert await hand.ahead(1 + STALENESS, training) is None
    assert len(asked) == 1
    hand.unproven.extend(scored[-1:])
    assert await hand.ahead(1 + STALENESS, training) is None
    assert len(asked) == 2
