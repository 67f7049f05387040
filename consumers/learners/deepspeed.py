"""The learner: a DeepSpeed engine (ZeRO 0-3, torch AdamW) around a policy, driven batch by batch.

For: optimizer steps, checkpoints, weights out. Not for: versions or streams. No compiler is needed: the shared-memory
operator DeepSpeed would build at start is switched off (a private table, hence the pinned version), and AdamW is torch's.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from broker.errors import Broken
from broker.messages import Actions, Group
from broker.settings import ModelSection
from consumers.algorithms import create as create_algorithm
from consumers.algorithms.base import Algorithm, LossBatch
from consumers.correction import corrected
from consumers.learners.base import StepResult
from consumers.packing import micro_batches
from consumers.policies.causal_lm import CausalLm
from consumers.settings import AlgorithmSection, TrainSection


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sibling as the learner needs it."""

    context: Actions
    actions: Actions
    behaviour: NDArray[np.float32]
    mask: NDArray[np.uint8]
    advantage: float
    temperature: float


class DeepSpeedLearner:
    """See `consumers.learners.base.Learner`."""

    def __init__(self, policy: CausalLm, algorithm: Algorithm, settings: TrainSection, correction: AlgorithmSection, seed: int) -> None:
        torch.manual_seed(seed)
        self.policy, self.algorithm, self.settings, self.correction = policy, algorithm, settings, correction.correction
        self.reference = frozen_copy(policy) if algorithm.needs_reference else None
        self.engine = start_engine(policy, settings)

    def step(self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int) -> StepResult:
        torch.manual_seed(seed)
        started = time.perf_counter()
        everyone = rollouts_of(groups, advantages)
        total_actions = float(sum(int(one.mask.sum()) for one in everyone)) or 1.0
        trained = [one for one in everyone if one.advantage != 0 or self.reference is not None]
        self.set_lr(version)
        sums: dict[str, float] = {}
        if trained:
            for part in minibatches(trained, self.settings.optimizer_steps, seed):
                self.optimize(part, total_actions, len(everyone), sums)
        metrics = {name: value / total_actions for name, value in sums.items() if name not in AS_THEY_ARE}
        metrics |= {name: value for name, value in sums.items() if name in AS_THEY_ARE}
        metrics["trained_actions"] = float(sum(len(one.actions) for one in trained))
        metrics["compute_s"] = time.perf_counter() - started
        return StepResult(metrics=metrics)

    def optimize(self, rollouts: Sequence[Rollout], total_actions: float, total_rollouts: int, sums: dict[str, float]) -> None:
        """One optimizer step over micro-batches."""
        plan = micro_batches([len(one.context) + len(one.actions) for one in rollouts], self.settings.micro_tokens)
        several = self.settings.optimizer_steps > 1
        proximal = [self.plain_logprobs([rollouts[i] for i in part]) for part in plan] if several else [None] * len(plan)
        for number, (part, before) in enumerate(zip(plan, proximal, strict=True)):
            chosen = [rollouts[index] for index in part]
            logprobs = self.policy.logprobs(self.engine, *columns_of(chosen))
            batch, metrics = self.loss_batch(chosen, logprobs, before, total_actions, total_rollouts)
            loss = self.algorithm.loss(logprobs, batch)
            self.engine.set_gradient_accumulation_boundary(number == len(plan) - 1)
            self.engine.backward(loss.value)
            self.engine.step()
            add(sums, {"loss": float(loss.value.detach()), **loss.metrics, **metrics})
        norm = self.engine.get_global_grad_norm()
        sums["grad_norm"] = float(norm) if norm is not None else 0.0

    def loss_batch(
        self, chosen: Sequence[Rollout], logprobs: Tensor, proximal: Tensor | None, total_actions: float, total_rollouts: int
    ) -> tuple[LossBatch, dict[str, float]]:
        sizes = [len(one.actions) for one in chosen]
        behaviour = torch.from_numpy(np.concatenate([one.behaviour for one in chosen])).to(logprobs.device)
        mask = torch.from_numpy(np.concatenate([one.mask for one in chosen])).to(logprobs)
        rollout = torch.from_numpy(np.repeat(np.arange(len(chosen)), sizes)).to(logprobs.device)
        advantage = torch.tensor([one.advantage for one in chosen], dtype=torch.float32, device=logprobs.device)[rollout]
        start = logprobs.detach() if proximal is None else proximal
        weights, metrics = corrected(start, behaviour, mask, rollout, len(chosen), self.correction)
        batch = LossBatch(
            behaviour_logprobs=behaviour,
            proximal_logprobs=proximal,
            reference_logprobs=self.reference_logprobs(chosen),
            advantages=advantage,
            weights=weights,
            mask=mask,
            rollout=rollout,
            rollouts=len(chosen),
            total_actions=total_actions,
            total_rollouts=total_rollouts,
        )
        return batch, metrics

    @torch.no_grad()
    def plain_logprobs(self, chosen: Sequence[Rollout]) -> Tensor:
        return self.policy.logprobs(self.engine.module, *columns_of(chosen))

    @torch.no_grad()
    def reference_logprobs(self, chosen: Sequence[Rollout]) -> Tensor | None:
        return None if self.reference is None else self.policy.logprobs(self.reference, *columns_of(chosen))

    @torch.no_grad()
    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        flat = self.policy.logprobs(self.engine.module, contexts, continuations, [1.0] * len(contexts)).cpu().numpy()
        return np.split(flat, np.cumsum([len(one) for one in continuations])[:-1])

    def set_lr(self, version: int) -> None:
        """Linear warm-up, then constant; a function of the version, so a resumed run goes on where it was."""
        share = min(1.0, (version + 1) / self.settings.warmup_steps) if self.settings.warmup_steps else 1.0
        for group in self.engine.optimizer.param_groups:
            group["lr"] = self.settings.lr * share

    def export(self, folder: Path) -> None:
        if self.settings.zero_stage < 3:
            self.policy.export(folder)
            return
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(self.policy.module.parameters()), modifier_rank=None):
            self.policy.export(folder)

    def save(self, folder: Path) -> None:
        self.engine.save_checkpoint(str(folder), tag="state", client_state={"rng": torch.get_rng_state()})

    def load(self, folder: Path) -> None:
        found, client = self.engine.load_checkpoint(str(folder), tag="state")
        if found is None:
            raise Broken(f"{folder} holds no DeepSpeed checkpoint; stopping; delete it to start from the one before")
        torch.set_rng_state(client["rng"])

    def load_weights(self, folder: Path) -> None:
        self.policy.load(folder)

    def save_pretrained(self, folder: Path) -> None:
        self.policy.save_pretrained(folder)

    def close(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


AS_THEY_ARE = {"loss", "grad_norm", "ratio_max"}
"""Metrics that are not sums over actions."""


def add(sums: dict[str, float], metrics: dict[str, float]) -> None:
    for name, value in metrics.items():
        sums[name] = max(sums.get(name, 0.0), value) if name.endswith("_max") else sums.get(name, 0.0) + value


def rollouts_of(groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]]) -> list[Rollout]:
    """All siblings of all groups, in order; raises Broken for a group without rollouts."""
    found: list[Rollout] = []
    for group, credit in zip(groups, advantages, strict=True):
        sampled = group.rollouts
        if sampled is None:
            raise Broken(f"group {group.id} reached the learner without rollouts; stopping; this is a bug of a rollout producer")
        for sibling, advantage in enumerate(credit):
            own = sampled.sibling(sibling)
            found.append(
                Rollout(
                    group.prompt.actions,
                    sampled.actions[own],
                    sampled.logprobs[own],
                    sampled.mask[own],
                    float(advantage),
                    group.prompt.temperature,
                )
            )
    return found


def columns_of(chosen: Sequence[Rollout]) -> tuple[list[Actions], list[Actions], list[float]]:
    return [one.context for one in chosen], [one.actions for one in chosen], [one.temperature for one in chosen]


def minibatches(rollouts: Sequence[Rollout], number: int, seed: int) -> list[list[Rollout]]:
    """`number` parts of about the same size, shuffled by the seed when there is more than one."""
    if number == 1:
        return [list(rollouts)]
    order = np.random.default_rng(seed).permutation(len(rollouts))
    return [[rollouts[index] for index in part] for part in np.array_split(order, number) if len(part)]


def frozen_copy(policy: CausalLm) -> torch.nn.Module:
    import copy

    reference = copy.deepcopy(policy.module)
    reference.requires_grad_(False)
    return reference.eval()


def start_engine(policy: CausalLm, settings: TrainSection) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if policy.device.startswith("cuda") else "cpu")
    import deepspeed
    import deepspeed.ops

    if policy.device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    single_rank_address()
    deepspeed.init_distributed(dist_backend="gloo" if policy.device == "cpu" else "nccl", verbose=False)
    parameters = [one for one in policy.module.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.grad_clip,
        "steps_per_print": 10**9,
        "zero_optimization": {"stage": settings.zero_stage},
        "zero_allow_untested_optimizer": True,
    }
    if next(policy.module.parameters()).dtype == torch.bfloat16:
        config["bf16"] = {"enabled": True}
    engine, *_ = deepspeed.initialize(model=policy.module, optimizer=optimizer, config=config)
    return engine


def single_rank_address() -> None:
    """Without a launcher a single rank talks to itself on a free loopback port."""
    if "RANK" in os.environ:
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")


def make(*, model_folder: Path, settings: TrainSection, algorithm: AlgorithmSection, model: ModelSection, seed: int) -> DeepSpeedLearner:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = CausalLm(model_folder, dtype=model.dtype, lora=settings.lora, device=device)
    return DeepSpeedLearner(policy, create_algorithm(algorithm), settings, algorithm, seed)
