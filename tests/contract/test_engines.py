"""What every registered engine keeps: recorded probabilities are those of the weights that sampled, and nothing is
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from broker.errors import Poison, TidemillError
from broker.messages import Group, Rollouts
from producers.engines import create
from producers.engines.base import Continuation, Engine
from tests.contract.engine_cases import LONGEST, VERSIONS, Case, Weights, all_cases, group, publish, settings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

NATS = 1e-4


@dataclass
class Bench:
    """An engine and the weights it may be given."""

    case: Case
    engine: Engine
    weights: dict[int, Weights]

    @property
    def is_model(self) -> bool:
        return self.case.engine != "scripted"

    async def load(self, version: int) -> Weights:
        await self.engine.load(self.weights[version].folder, version)
        return self.weights[version]

    async def generate(self, *groups: Group) -> list[Rollouts]:
        return await asyncio.gather(*map(self.engine.generate, groups))

    def check(self, asked: Group, rollouts: Rollouts) -> None:
        """Spans cover every action, and each action has the log-prob that its version gives it."""
        prompt, seen = asked.prompt, np.zeros(len(rollouts.actions), np.bool_)
        assert len(rollouts.texts) == len(rollouts.finishes) == len(rollouts.offsets) - 1 == prompt.size
        for sibling, start, end, version in rollouts.spans.tolist():
            actions = rollouts.actions[rollouts.sibling(sibling)]
            expected = self.weights[version].logprobs(prompt.actions.tolist(), actions.tolist(), prompt.temperature)
            own = slice(int(rollouts.offsets[sibling]) + start, int(rollouts.offsets[sibling]) + end)
            np.testing.assert_allclose(rollouts.logprobs[own], expected[start:end], atol=NATS, rtol=0)
            assert not seen[own].any()
            seen[own] = True
        assert seen.all() and rollouts.mask.all()
        self.check_ends(asked, rollouts)

    def check_ends(self, asked: Group, rollouts: Rollouts) -> None:
        stop, most = asked.prompt.stop, asked.prompt.max_actions
        for index, finish in enumerate(rollouts.finishes):
            actions = rollouts.actions[rollouts.sibling(index)].tolist()
            assert len(actions) <= most
            assert not set(actions[:-1]) & set(stop)
            assert actions[-1] in stop if finish == "stop" else len(actions) == most and actions[-1] not in stop


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(all_cases()), ids=str)
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    case: Case = request.param
    root = tmp_path_factory.mktemp(str(case))
    for version in VERSIONS:
        (root / str(version)).mkdir()
        publish(case.model, version, root / str(version))
    engine = create(case.engine, root / "0", settings(case), seed=0)
    weights = {version: Weights(root / str(version), case.engine == "scripted") for version in VERSIONS}
    yield Bench(case, engine, weights)
    await engine.close()


async def test_prompts_of_all_lengths_and_temperatures_are_sampled_together(bench: Bench) -> None:
    await bench.load(0)
    shapes = [(3, 1.0, 9), (17, 0.7, 4), (8, 1.3, 1), (1, 0.0, 20), (30, 1.0, 2)]
    asked = [group(i, length=n, temperature=t, most=m, stop=(5, 9)) for i, (n, t, m) in enumerate(shapes)]
    for each, rollouts in zip(asked, await bench.generate(*asked), strict=True):
        bench.check(each, rollouts)


async def test_more_groups_than_rows_are_all_finished(bench: Bench) -> None:
    await bench.load(0)
    asked = [group(i, length=2 + i % 7, most=1 + (i * 7) % 40, size=1 + i % 5) for i in range(24)]
    for each, rollouts in zip(asked, await bench.generate(*asked), strict=True):
        bench.check(each, rollouts)


async def test_a_group_larger_than_all_rows_is_still_sampled(bench: Bench) -> None:
    await bench.load(0)
    asked = group(1, size=40, most=3)
    bench.check(asked, (await bench.generate(asked))[0])


async def test_different_weights_are_served_after_a_load(bench: Bench) -> None:
    asked = group(3)
    for version in (0, 1, 2, 0):
        await bench.load(version)
        rollouts = (await bench.generate(asked))[0]
        assert rollouts.oldest_version == rollouts.newest_version == version
        bench.check(asked, rollouts)


async def test_a_prompt_read_before_is_read_again_under_new_weights(bench: Bench) -> None:
    await bench.load(1)
    again = [group(4, length=40), group(4, length=40, size=2)]
    for each in again:
        bench.check(each, (await bench.generate(each))[0])
    await bench.load(2)
    for each in again:
        bench.check(each, (await bench.generate(each))[0])


async def test_weights_may_change_in_flight(bench: Bench) -> None:
    for _ in range(10):  # a busy machine may load so late that every sibling has ended
        spans = await spans_over_a_load(bench)
        assert spans <= {(0,), (0, 1), (1,)}
        if (0, 1) in spans:
            return
    raise AssertionError("no sibling was sampled by two versions")


async def spans_over_a_load(bench: Bench) -> set[tuple[int, ...]]:
    """The versions of each sibling, while the weights change."""
    await bench.load(0)
    asked = [group(i, length=3 + 5 * (i % 8), most=100 - 9 * (i % 6)) for i in range(20)]
    running = asyncio.gather(*map(bench.engine.generate, asked))
    await started(bench)
    await bench.load(1)
    spans = set[tuple[int, ...]]()
    for each, rollouts in zip(asked, await running, strict=True):
        bench.check(each, rollouts)
        for sibling in range(each.prompt.size):
            own = rollouts.spans[rollouts.spans[:, 0] == sibling]
            assert all(before[2] == after[1] and before[3] < after[3] for before, after in pairwise(own.tolist()))
            spans.add(tuple(own[:, 3].tolist()))
    return spans


async def started(bench: Bench) -> None:
    """Wait until the core has made a few steps, wherever it keeps count."""
    first = getattr(bench.engine, "beats", 0)
    while getattr(bench.engine, "beats", 3) < first + 3:  # noqa: ASYNC110  the engine counts, it does not call
        await asyncio.sleep(0)


async def test_log_probs_of_given_continuations_are_those_of_the_weights(bench: Bench) -> None:
    draw = np.random.default_rng(5)
    sequences = [
        Continuation(
            context=draw.integers(3, 60, length).astype(np.int32),
            continuation=draw.integers(3, 60, more).astype(np.int32),
            temperature=temperature,
        )
        for length, more, temperature in [(1, 1, 1.0), (12, 30, 0.6), (40, 3, 1.0), (5, 9, 1.7)]
    ]
    for version in (1, 2):
        weights = await bench.load(version)
        for each, found in zip(sequences, await bench.engine.logprobs(sequences), strict=True):
            expected = weights.logprobs(each.context.tolist(), each.continuation.tolist(), each.temperature)
            np.testing.assert_allclose(found, expected, atol=NATS, rtol=0)


async def test_the_same_seed_samples_the_same_whatever_runs_beside_it(bench: Bench) -> None:
    await bench.load(0)
    asked = group(7, length=6, most=15)
    alone = (await bench.generate(asked))[0]
    companions = [group(20 + i, length=1 + 3 * i, most=5 + i) for i in range(8)]
    among = (await bench.generate(*companions[:4], asked, *companions[4:]))[4]
    np.testing.assert_array_equal(alone.actions, among.actions)
    assert alone.texts == among.texts and alone.finishes == among.finishes


async def test_siblings_differ(bench: Bench) -> None:
    if not bench.is_model:
        pytest.skip("says one of two things")
    await bench.load(0)
    rollouts = (await bench.generate(group(8, size=8, most=20)))[0]
    assert len({tuple(rollouts.actions[rollouts.sibling(index)].tolist()) for index in range(8)}) == 8


async def test_temperature_zero_takes_the_likeliest(bench: Bench) -> None:
    if not bench.is_model:
        pytest.skip("has no probabilities")
    weights = await bench.load(1)
    asked = group(9, temperature=0.0, most=6, size=1)
    context = asked.prompt.actions.tolist()
    for action in (await bench.generate(asked))[0].actions.tolist():
        assert action == weights.likeliest(context)
        context.append(action)


async def test_a_stop_token_ends_a_rollout_and_stays_its_last_action(bench: Bench) -> None:
    await bench.load(0)
    free = (await bench.generate(group(10, most=30)))[0]
    stop = (int(free.actions[free.sibling(0)][4]),)
    asked = group(10, most=30, stop=stop)
    rollouts = (await bench.generate(asked))[0]
    bench.check(asked, rollouts)
    assert rollouts.finishes[0] == "stop"
    if bench.is_model:
        expected = free.actions[free.sibling(0)].tolist()
        assert rollouts.actions[rollouts.sibling(0)].tolist() == expected[: expected.index(stop[0]) + 1]


async def test_a_group_that_cannot_fit_is_poison_and_harms_no_other(bench: Bench) -> None:
    await bench.load(0)
    fits, fits_not = group(11, length=LONGEST - 6, most=6), group(12, length=LONGEST - 6, most=7)
    answers = await asyncio.gather(bench.engine.generate(fits), bench.engine.generate(fits_not), return_exceptions=True)
    assert isinstance(answers[0], Rollouts)
    bench.check(fits, answers[0])
    assert isinstance(answers[1], Poison) and str(LONGEST) in str(answers[1])


async def test_a_file_cut_short_is_refused_and_the_old_weights_stay(bench: Bench, tmp_path: Path) -> None:
    weights = await bench.load(1)
    whole = (weights.folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) - 2])
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(TidemillError, match="safetensors"):
            await bench.engine.load(folder, 2)
    asked = group(13)
    bench.check(asked, (await bench.generate(asked))[0])
