"""The scripted engine's pace: stated seconds, slept in naps that let it be spoken to; more work from a version on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.errors import Misconfigured, Transient
from broker.messages import Group, Prompt
from producers.engines.scripted import NAP_S, ScriptedCore, make
from producers.engines.stepped import SteppedEngine
from producers.settings import RolloutSection
from tests.integration.test_launcher import lay_model


def core(tmp_path: Path, **options: Any) -> ScriptedCore:
    folder = tmp_path / "model"
    if not folder.exists():
        lay_model(folder)
    settings = RolloutSection(engine="scripted", group_size=4, max_rows=8, options=options)
    made = make(folder, settings, seed=0)
    made.load(folder, 0)
    return made


def group(number: int) -> Group:
    context = np.arange(4, 8, dtype=np.int32)
    prompt = Prompt(text="12+3", actions=context, size=4, seed=number, answer="15", max_actions=128, stop=(2,))
    return Group(id=f"x/0/{number}", kind="train", prompt=prompt)


def sampled(engine: ScriptedCore, number: int) -> tuple[int, int, float]:
    """(tokens, steps, longest step) of one group."""
    engine.add(group(number))
    steps, longest = 0, 0.0
    while True:
        began = time.monotonic()
        found = engine.step()
        steps, longest = steps + 1, max(longest, time.monotonic() - began)
        if found:
            return len(found[0][1].logprobs), steps, longest


def test_a_group_takes_its_seconds_and_those_of_its_tokens_in_naps(tmp_path: Path) -> None:
    engine = core(tmp_path, length=(20, 40), pace_s=0.1, token_pace_s=0.002)
    began = time.monotonic()
    tokens, steps, longest = sampled(engine, 1)
    took = time.monotonic() - began
    assert 4 * 20 <= tokens <= 4 * 40
    stated = 0.1 + 0.002 * tokens
    assert stated <= took < stated + 1.0
    assert steps >= stated / NAP_S - 2
    assert longest < stated


def test_responses_are_longer_from_a_version_on_and_the_same_whoever_samples_them(tmp_path: Path) -> None:
    options = {"length": (10, 20), "later": {"version": 3, "length": (60, 90)}}
    one, other = core(tmp_path, **options), core(tmp_path, **options)
    before = [sampled(one, number)[0] for number in range(5)]
    one.load(tmp_path / "model", 3)
    after = [sampled(one, number)[0] for number in range(5)]
    assert max(before) <= 4 * 20 < 4 * 60 <= min(after)
    assert [sampled(other, number)[0] for number in reversed(range(5))] == before[::-1]


def test_a_group_begun_before_the_version_came_stays_as_it_was_planned(tmp_path: Path) -> None:
    engine = core(tmp_path, length=(10, 20), beats=2, later={"version": 1, "length": (60, 90)})
    engine.add(group(1))
    assert engine.step() == []
    engine.load(tmp_path / "model", 1)
    ((_, rollouts),) = engine.step()
    assert len(rollouts.logprobs) <= 4 * 20
    assert (rollouts.oldest_version, rollouts.newest_version) == (0, 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"length": (5, 4)}, r"options\] length = .*write \[least, most\]"),
        ({"length": (0, 4)}, r"options\] length = .*1 or more"),
        (
            {"later": {"version": 1, "length": (5, 129)}},
            "up to 129 actions a rollout, but max_tokens = 128 cuts them",
        ),
    ],
)
def test_lengths_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(Misconfigured, match=told):
        core(tmp_path, **options)


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r'rollout.options\] later.lenght: unknown key; .*did you mean "length"'):
        core(tmp_path, later={"version": 1, "lenght": (1, 2)})


async def test_closing_and_loading_do_not_wait_for_a_long_group(tmp_path: Path) -> None:
    engine = SteppedEngine(core(tmp_path, pace_s=600))
    asked = asyncio.ensure_future(engine.generate(group(1)))
    await asyncio.sleep(0.1)
    began, beats = time.monotonic(), engine.beats
    await engine.load(tmp_path / "model", 1)
    assert engine.beats > beats, "it shows that it goes on"
    await engine.close()
    assert time.monotonic() - began < 5
    with pytest.raises(Transient):
        await asked


def test_groups_are_told_apart_by_their_seed(tmp_path: Path) -> None:
    engine = core(tmp_path, length=(10, 100))
    assert len({sampled(engine, number)[0] for number in range(20)}) > 10
    again = replace(group(3), id="other")
    engine.add(again)
    while not (found := engine.step()):
        pass
    assert len(found[0][1].logprobs) == sampled(engine, 3)[0]
