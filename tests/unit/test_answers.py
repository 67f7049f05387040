"""Answers of handlers are settled together where that costs little time."""

from __future__ import annotations

import asyncio
import time

import pytest

from broker.answers import SHARE, Answer, gathered
from broker.messages import Delivery, Entry
from broker.outcomes import Release
from broker.streams import PROMPTS


def answer(number: int, lasted_s: float) -> Answer:
    entry = Entry(group=f"g{number}", kind="train", task="t", size=1, floor=0, last_version=1)
    return Answer(Delivery(stream=PROMPTS, entry_id=f"{number}-0", entry=entry), Release(reason="test"), 0.0, lasted_s)


async def later(answers: asyncio.Queue[Answer], *which: Answer) -> None:
    for one in which:
        await asyncio.sleep(0)
        await answers.put(one)


async def test_answers_that_follow_at_once_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.answers.LONGEST_S", 60.0)
    answers = asyncio.Queue[Answer]()
    coming = asyncio.create_task(later(answers, *(answer(number, 60.0) for number in range(3))))
    found = await gathered(answers, lambda: 3)
    assert [one.delivery.entry.group for one in found] == ["g0", "g1", "g2"]
    await coming


async def test_the_last_one_in_hand_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.answers.LONGEST_S", 60.0)
    answers = asyncio.Queue[Answer]()
    await answers.put(answer(0, 600.0))
    assert len(await asyncio.wait_for(gathered(answers, lambda: 1), 5)) == 1


async def test_an_answer_that_was_made_quickly_does_not_wait_for_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.answers.LONGEST_S", 60.0)
    answers = asyncio.Queue[Answer]()
    await answers.put(answer(0, 0.0))
    assert len(await asyncio.wait_for(gathered(answers, lambda: 2), 5)) == 1


@pytest.mark.parametrize(("lasted_s", "longest_s"), [(1.0, 60.0), (600.0, 0.1)])
async def test_an_answer_waits_for_its_share_and_no_longer_than_the_longest(
    monkeypatch: pytest.MonkeyPatch, lasted_s: float, longest_s: float
) -> None:
    monkeypatch.setattr("broker.answers.LONGEST_S", longest_s)
    answers = asyncio.Queue[Answer]()
    await answers.put(answer(0, lasted_s))
    began = time.monotonic()
    assert len(await asyncio.wait_for(gathered(answers, lambda: 2), 10)) == 1
    assert time.monotonic() - began >= min(longest_s, SHARE * lasted_s)
