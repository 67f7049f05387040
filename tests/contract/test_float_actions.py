"""Actions that are vectors go the whole way: prompt, codec, broker, reward, algorithm, learner; they are learnt from.

Only the two who may know what an action is do: the actor here (an engine's part) and the policy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
from numpy.typing import NDArray

from broker.messages import Delivery, Group, Prompt, Rollouts
from broker.outcomes import Forward, Outcome
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from consumers.algorithms import create as create_algorithm
from consumers.policies import gaussian
from consumers.reward_consumer import RewardConsumer
from consumers.rewards.base import Score
from consumers.settings import AlgorithmSection
from consumers.step_inputs import advantages_of
from tests.contract.broker_world import Trainer, World, open_run, step, take
from tests.contract.learner_cases import exported, learner

B, G, LENGTH, CONTEXT, WIDTH = 16, 8, 2, 3, 2
"""Groups of a batch, siblings, actions of a rollout, numbers of a context and of an action."""

pytestmark = pytest.mark.asyncio


class Actor:
    """Draws vectors from the exported policy, with their log-densities: what an engine of this modality would do."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.noise = folder, torch.Generator().manual_seed(seed)

    async def __call__(self, delivery: Delivery, group: Group) -> Outcome:
        return Forward(group=group.with_rollouts(self.drawn(group)))

    @torch.no_grad()
    def drawn(self, group: Group) -> Rollouts:
        policy = gaussian.Gaussian(self.folder)
        context = torch.from_numpy(group.prompt.actions.astype(np.float32)).expand(G, CONTEXT)
        drawn = [torch.zeros(G, WIDTH)]
        for _ in range(LENGTH):
            mean = policy.module.mean(torch.cat([context, drawn[-1]], dim=-1))
            drawn.append(mean + policy.module.log_spread.exp() * torch.randn(G, WIDTH, generator=self.noise))
        actions = [each.numpy() for each in torch.stack(drawn[1:], dim=1)]
        logprobs = policy.logprobs(policy.module, [group.prompt.actions] * G, actions, [1.0] * G)
        return rollouts_of(actions, logprobs.numpy())


def rollouts_of(actions: list[NDArray[np.float32]], logprobs: NDArray[np.float32]) -> Rollouts:
    return Rollouts(
        texts=("",) * G,
        actions=np.concatenate(actions),
        offsets=np.arange(0, G * LENGTH + 1, LENGTH, dtype=np.int32),
        logprobs=logprobs,
        mask=np.ones(G * LENGTH, np.uint8),
        spans=np.array([(sibling, 0, LENGTH, 0) for sibling in range(G)], np.int32),
        finishes=("length",) * G,
    )


class Nearness:
    """A reward: how near a rollout's actions are to the point its context names."""

    capacity, beats = B, 0

    async def start(self) -> None: ...

    async def score(self, group: Group) -> Score:
        assert group.rollouts is not None
        off = group.rollouts.actions - 2 * group.prompt.actions[0, :WIDTH]
        near = -(off**2).sum(1).reshape(G, LENGTH).mean(1).astype(np.float32) / 4
        return Score(rewards=near, parts={"near": near})

    async def close(self) -> None: ...


def asked(number: int, rng: np.random.Generator) -> Group:
    context = rng.choice([-1.0, 1.0], size=(1, CONTEXT)).astype(np.float32)
    prompt = Prompt(text="", actions=context, size=G, seed=number, task="plane", max_actions=LENGTH)
    return Group(id=f"plane/0/{number}", kind="train", prompt=prompt)


@pytest_asyncio.fixture
async def trainer(world: World) -> AsyncIterator[Trainer]:
    yield await open_run(world, cap=B, groups=B, staleness=0)


async def work(trainer: Trainer, stream: str, handle: Actor | RewardConsumer) -> None:
    """One stage: read B groups, work on each, settle them together."""
    deliveries = await take(trainer, stream, "reader", B)
    bodies = await trainer.bodies(deliveries)
    done = [(one, await handle(one, body)) for one, body in zip(deliveries, bodies, strict=True) if body]
    assert await trainer.settle("reader", done) == ["done"] * B


async def test_vectors_are_sampled_scored_and_learnt_from_through_the_broker(trainer: Trainer, tmp_path: Path) -> None:
    gaussian.build(tmp_path, gaussian.Sizes(context=CONTEXT, action=WIDTH), seed=0)
    one, algorithm = learner(tmp_path, lr=0.02, options={"policy": "gaussian"}), create_algorithm(AlgorithmSection())
    scorer = RewardConsumer(Nearness(), algorithm.has_signal, dynamic_sampling=False)
    actor, rng, means = Actor(tmp_path, seed=0), np.random.default_rng(0), list[float]()
    for version in range(30):
        offered = [asked(version * B + number, rng) for number in range(B)]
        assert (await trainer.admit(version * B, "", offered)).admitted == B
        await work(trainer, PROMPTS, actor)
        await work(trainer, ROLLOUTS, scorer)
        scored = await take(trainer, SCORED, "trainer", B)
        groups = [body for body in await trainer.bodies(scored) if body]
        assert_vectors(groups, offered)
        result = one.step(groups, advantages_of(algorithm, groups), version=version, seed=version)
        assert result.metrics["trained_actions"] == B * G * LENGTH
        assert result.metrics["mismatch_k3"] == pytest.approx(0, abs=1e-6), "the actor's densities are the policy's"
        exported(one, tmp_path)
        await trainer.prepare(scored)
        await trainer.commit(*step(version + 1, scored), scored)
        means.append(float(np.mean([group.reward or 0.0 for group in groups])))
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.5, means
    assert (await trainer.books()).count("train.trained") == 30 * B


def assert_vectors(groups: list[Group], offered: list[Group]) -> None:
    """What came back is float32 of the same shape; contexts bit for bit what was admitted."""
    contexts = {group.id: group.prompt.actions for group in offered}
    for group in groups:
        assert group.rollouts is not None
        assert group.rollouts.actions.dtype == group.prompt.actions.dtype == np.float32
        assert group.rollouts.actions.shape == (G * LENGTH, WIDTH)
        assert np.array_equal(group.prompt.actions, contexts[group.id])
    assert len(groups) == len(offered) == B
