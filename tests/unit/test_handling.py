"""What a handler answers is checked by encoding it, once, and that encoding is what settles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from broker import codec
from broker.fields import Fields
from broker.handling import answer
from broker.messages import Delivery, Entry, Group, Rollouts
from broker.outcomes import Bury, Forward, Outcome
from broker.redis_forms import settlement_call
from broker.streams import PROMPTS
from tests.contract.broker_world import group as named
from tests.contract.broker_world import rolled

DELIVERY = Delivery(
    stream=PROMPTS,
    entry_id="1-0",
    entry=Entry(group="story/0/0", kind="train", task="story", size=2, floor=0, last_version=3),
)


def some_part() -> Rollouts:
    part = rolled(named("story/0/0")).rollouts
    assert part is not None
    return part


def answered(part: Rollouts) -> Outcome:
    async def handle(delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_rollouts(part))

    return asyncio.run(answer(handle, DELIVERY, named("story/0/0"), max_attempts=3))


def settles(outcome: Outcome) -> dict[Any, Any]:
    """What its settlement adds to the body."""
    _, args = settlement_call("rollout-0.1", DELIVERY, outcome)
    flat = args[len(args) - int(args[5 + int(args[4])]) :]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_part_that_goes_on_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Rollouts] = []
    whole = codec.encode_rollouts

    def counting(part: Rollouts) -> Fields:
        encoded.append(part)
        return whole(part)

    monkeypatch.setattr(codec, "encode_rollouts", counting)
    part = some_part()
    assert settles(answered(part)) == whole(part)
    assert len(encoded) == 1


def test_what_settles_is_the_part_as_it_was_when_the_handler_answered() -> None:
    part = some_part()
    before, outcome = codec.encode_rollouts(part), answered(part)
    part.logprobs[:] = -7.0
    assert codec.encode_rollouts(part) != before
    assert settles(outcome) == before


def test_an_outcome_that_nobody_checked_is_encoded_when_it_settles() -> None:
    part = some_part()
    assert settles(Forward(group=named("story/0/0").with_rollouts(part))) == codec.encode_rollouts(part)


def test_a_handler_cannot_put_an_encoding_of_its_own_in_the_checked_ones_place() -> None:
    part = some_part()

    async def handle(delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_rollouts(part), added={b"r0.text": b"another"})

    outcome = asyncio.run(answer(handle, DELIVERY, named("story/0/0"), max_attempts=3))
    assert settles(outcome) == codec.encode_rollouts(part)


def test_an_answer_that_cannot_travel_buries_its_group() -> None:
    part = some_part()
    spoiled = replace(part, logprobs=np.full_like(part.logprobs, np.nan))
    outcome = answered(spoiled)
    assert isinstance(outcome, Bury)
    assert "logprobs holds nan" in outcome.reason
