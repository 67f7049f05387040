"""Engine `vllm` in a process of its own: the same promises, kept across two processes.

Made for a GPU. Without one it runs on vLLM's CPU build, with a start of half a minute: `pytest -m gpu tests/gpu`.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio
import torch

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed (deploy/setup.sh with VLLM=0 leaves it out)", allow_module_level=True)

from broker.errors import Broken, Poison
from broker.messages import Group, Rollouts
from producers.engines.base import Continuation
from producers.engines.vllm import prepare_environment
from producers.settings import RolloutSection, VllmOptions
from tests.contract.engine_cases import LONGEST, Weights, group, publish

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ON_CPU = not torch.cuda.is_available()

NATS = 1e-4 if ON_CPU else 5e-3
"""In float32; a GPU adds in another order, and its attention kernels round more."""


class World:
    """The engine's process, and the versions it can be given."""

    def __init__(self, root: Path, model: str) -> None:
        from producers.engines.vllm_async import VllmAsync

        self.weights: dict[int, Weights] = {}
        for version in range(3):
            (root / str(version)).mkdir()
            publish(model, version, root / str(version))
            self.weights[version] = Weights(root / str(version), scripted=False)
        options = VllmOptions(kv_cache_mb=64, deadline_s=60.0)
        settings = RolloutSection(max_rows=64, options={})
        self.engine = VllmAsync(root / "0", settings, options, seed=0, on_cpu=ON_CPU)

    async def load(self, version: int) -> None:
        await self.engine.load(self.weights[version].folder, version)

    def largest_error(self, asked: Group, rollouts: Rollouts) -> float:
        """Over all spans, each against a transformers forward of the version it names."""
        return max(self.error(asked, rollouts, *span) for span in rollouts.spans.tolist())

    def error(self, asked: Group, rollouts: Rollouts, sibling: int, start: int, end: int, version: int) -> float:
        context, actions = asked.prompt.actions.tolist(), rollouts.actions[rollouts.sibling(sibling)].tolist()
        expected = self.weights[version].logprobs(context, actions, asked.prompt.temperature)
        return float(np.abs(rollouts.logprobs[rollouts.sibling(sibling)] - expected)[start:end].max())


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["llama-tied", "llama-untied"])
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    prepare_environment(on_cpu=ON_CPU)
    world = await asyncio.to_thread(World, tmp_path_factory.mktemp(request.param), request.param)
    yield world
    await world.engine.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_recorded_logprobs_are_those_of_the_weights_loaded_last(world: World, temperature: float) -> None:
    asked = [group(index, temperature=temperature, length=3 + 9 * index, stop=(5,)) for index in range(8)]
    for version in (1, 2, 0):
        await world.load(version)
        for each, rollouts in zip(asked, await asyncio.gather(*map(world.engine.generate, asked)), strict=True):
            assert rollouts.oldest_version == rollouts.newest_version == version
            assert world.largest_error(each, rollouts) < NATS


async def test_each_span_of_a_rollout_updated_in_flight_belongs_to_its_own_version(world: World) -> None:
    """Tried again until the update has met a group in flight: how fast it comes and goes is the machine's."""
    asked = [group(index, most=140) for index in range(16)]
    for attempt in range(20):
        await world.load(1)
        running = asyncio.gather(*map(world.engine.generate, asked))
        await asyncio.sleep(0.01 * attempt)
        await world.load(2)
        answers = await running
        for each, rollouts in zip(asked, answers, strict=True):
            assert world.largest_error(each, rollouts) < NATS
        if any((rollouts.oldest_version, rollouts.newest_version) == (1, 2) for rollouts in answers):
            return
    pytest.fail("no group was in flight at any update")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_scores_are_those_of_the_weights_loaded_last(world: World, temperature: float) -> None:
    await world.load(1)
    contexts = [group(index, length=2 + index).prompt.actions for index in range(12)]
    asked = [Continuation(context=each, continuation=each[::-1].copy(), temperature=temperature) for each in contexts]
    for each, found in zip(asked, await world.engine.logprobs(asked), strict=True):
        expected = world.weights[1].logprobs(each.context.tolist(), each.continuation.tolist(), temperature)
        assert np.abs(found - expected).max() < NATS


async def test_a_group_that_is_too_long_is_poison_and_one_given_up_is_taken_back(world: World) -> None:
    with pytest.raises(Poison, match=str(LONGEST)):
        await world.engine.generate(group(1, most=LONGEST))
    given_up = asyncio.create_task(world.engine.generate(group(1, most=150)))
    await asyncio.sleep(0.02)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert world.engine.engine.output_processor.get_num_unfinished_requests() == 0
    asked = group(2)
    assert world.largest_error(asked, await world.engine.generate(asked)) < NATS


async def test_a_killed_process_is_told_to_everybody_who_waits(world: World) -> None:
    """The last test of each engine: nothing is left of it."""
    waiting = [asyncio.create_task(world.engine.generate(group(index, most=150))) for index in range(8)]
    await asyncio.sleep(0.05)
    for child in psutil.Process().children(recursive=True):
        if "resource_tracker" not in " ".join(child.cmdline()):
            child.kill()
    for each in waiting:
        with pytest.raises(Broken, match="process failed"):
            await asyncio.wait_for(each, 30)
    with pytest.raises(Broken, match="process failed"):
        await world.load(1)
