"""The learner: a policy in a DeepSpeed engine, trained batch by batch; one of these on every rank.

For: optimizer steps, checkpoints, weights out. Not for: versions or streams; what ranks tell each other (`gang`,
`ranks`); DeepSpeed's particulars (`zero`). Nothing is drawn at random but the order of mini-batches, which the step's
seed decides: on a CPU the same state, batch and seed give the same bits.

N actions of a pass, flat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from broker.errors import Misconfigured
from broker.messages import Actions, Group
from broker.settings import ModelSection, load_section
from consumers import policies
from consumers.algorithms import create as create_algorithm
from consumers.algorithms.base import Algorithm, LossBatch
from consumers.correction import Corrected, correct
from consumers.learners import zero
from consumers.learners.base import StepResult, Write
from consumers.learners.gang import Gang, gather
from consumers.learners.rollouts import Rollout, mini_batches, passes, rollouts_of
from consumers.learners.tally import Tally
from consumers.packing import Shape, micro_batches
from consumers.policies.base import Policy
from consumers.settings import AlgorithmSection, Correction, DeepSpeedOptions, TrainSection


@dataclass(slots=True)
class Pass:
    """One forward and backward pass of this rank."""

    rollouts: list[Rollout]
    idle: bool
    """Other ranks have a pass more: this rank takes part with a rollout that weighs nothing."""
    proximal: Tensor | None = None
    """(N,) where it differs from the policy in training."""


class DeepSpeedLearner:
    """See `base.Learner`."""

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        correction: Correction,
        settings: TrainSection,
        gang: Gang,
        *,
        reference: Policy | None = None,
    ) -> None:
        self.policy, self.algorithm, self.correction, self.settings, self.gang = (
            policy,
            algorithm,
            correction,
            settings,
            gang,
        )
        self.options = options_of(settings)
        self.reference = reference
        self.engine = zero.engine_of(policy.module, settings, device=policy.device)

    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        started = time.perf_counter()
        torch.manual_seed(seed)
        everyone = rollouts_of(groups, advantages)
        trained = [one for one in everyone if one.advantage != 0 or self.trains_all]
        steps = [self.passes_of(part) for part in mini_batches(trained, self.settings.optimizer_steps, seed)]
        if self.looks_back:
            for one in (one for step in steps for one in step):
                one.proximal = self.without_gradient(self.policy, one.rollouts)
        self.set_lr(version)
        tally = Tally()
        for step in steps:
            self.optimize(step, everyone, tally)
        tally.over(self.gang)
        metrics = tally.metrics(optimizer_steps=self.settings.optimizer_steps)
        return StepResult(metrics=metrics | {"compute_s": time.perf_counter() - started})

    @property
    def trains_all(self) -> bool:
        """Whether rollouts without advantage take part."""
        return self.reference is not None or self.options.without_signal == "train"

    @property
    def looks_back(self) -> bool:
        """Whether a pass before the first optimizer step must tell what the policy is then."""
        return self.correction.token == "mis" or (self.settings.optimizer_steps > 1 and self.correction.token != "clip")

    def passes_of(self, rollouts: Sequence[Rollout]) -> list[Pass]:
        """This rank's share of an optimizer step."""
        plan = passes(
            rollouts, ranks=self.gang.size, budget=self.settings.micro_tokens, quadratic=self.policy.quadratic
        )
        return [Pass(rollouts=part or [rollouts[0]], idle=not part) for part in plan[self.gang.rank]]

    def optimize(self, step: Sequence[Pass], everyone: Sequence[Rollout], tally: Tally) -> None:
        """One optimizer step. A mini-batch's denominators are its share of the batch's."""
        share = 1 / self.settings.optimizer_steps
        actions = max(1.0, share * sum(int(one.mask.sum()) for one in everyone) - self.dropped(step))
        for number, one in enumerate(step, 1):
            self.engine.set_gradient_accumulation_boundary(number == len(step))
            logprobs = self.policy.logprobs(self.engine, *columns(one.rollouts))
            batch, corrected = self.loss_batch(
                one, logprobs, total_actions=actions, total_rollouts=share * len(everyone)
            )
            loss = self.algorithm.loss(logprobs, batch)
            self.engine.backward(loss.value * self.gang.size)
            tally.add({"loss": float(loss.value.detach()), **corrected.metrics, **loss.metrics})
        tally.norms.append(zero.finish(self.engine))

    def dropped(self, step: Sequence[Pass]) -> float:
        """Actions the correction takes out of the denominator, on all ranks."""
        if self.correction.token != "mis":
            return 0.0
        here = sum(float((self.mask(one) - self.corrected(one, one.proximal).mask).sum()) for one in step)
        return float(self.gang.total(torch.tensor([here], dtype=torch.float64)))

    def loss_batch(
        self, one: Pass, logprobs: Tensor, *, total_actions: float, total_rollouts: float
    ) -> tuple[LossBatch, Corrected]:
        corrected = self.corrected(one, logprobs.detach() if one.proximal is None else one.proximal)
        rollout = rollout_of(one, self.policy.device)
        advantages = torch.tensor([each.advantage for each in one.rollouts], dtype=torch.float32, device=rollout.device)
        reference = None if self.reference is None else self.without_gradient(self.reference, one.rollouts)
        behaviour = self.flat(one, "behaviour")
        batch = LossBatch(
            behaviour_logprobs=behaviour,
            proximal_logprobs=behaviour if self.correction.token == "clip" else one.proximal,
            reference_logprobs=reference,
            advantages=advantages.index_select(0, rollout),
            weights=corrected.weights,
            mask=corrected.mask,
            rollout=rollout,
            rollouts=len(one.rollouts),
            total_actions=total_actions,
            total_rollouts=total_rollouts,
        )
        return batch, corrected

    def corrected(self, one: Pass, proximal: Tensor | None) -> Corrected:
        assert proximal is not None
        rollout = rollout_of(one, self.policy.device)
        return correct(
            proximal, self.flat(one, "behaviour"), self.mask(one), rollout, len(one.rollouts), self.correction
        )

    def mask(self, one: Pass) -> Tensor:
        return self.flat(one, "mask") * (0.0 if one.idle else 1.0)

    def flat(self, one: Pass, name: str) -> Tensor:
        """(N,) float32 of an attribute of the rollouts."""
        values = np.concatenate([getattr(each, name) for each in one.rollouts])
        return torch.from_numpy(values.astype(np.float32)).to(self.policy.device)

    @torch.no_grad()
    def without_gradient(self, policy: Policy, rollouts: Sequence[Rollout]) -> Tensor:
        return policy.logprobs(policy.module, *columns(rollouts))

    @torch.no_grad()
    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        shapes = [Shape(len(one), len(other)) for one, other in zip(continuations, contexts, strict=True)]
        found: dict[int, NDArray[np.float32]] = {}
        for part in micro_batches(shapes, self.settings.micro_tokens):
            chosen = [continuations[index] for index in part]
            flat = self.policy.logprobs(
                self.policy.module, [contexts[index] for index in part], chosen, [1.0] * len(part)
            )
            cuts = np.cumsum([len(one) for one in chosen])[:-1]
            found.update(zip(part, np.split(flat.cpu().numpy(), cuts), strict=True))
        return [found[index] for index in range(len(shapes))]

    def set_lr(self, version: int) -> None:
        """Linear warm-up, then constant: a function of the version alone, so a resumed run goes on where it was."""
        warm = min(1.0, (version + 1) / max(1, self.settings.warmup_steps))
        for group in self.engine.optimizer.param_groups:
            group["lr"] = self.settings.lr * warm

    def whole(self) -> dict[str, Tensor] | None:
        return zero.whole_tensors(self.policy.module, stage=self.settings.zero_stage, wanted=self.gang.rank == 0)

    def export(self) -> Write:
        tensors = self.whole()
        return self.policy.export(tensors) if self.gang.rank == 0 else lambda _: None

    def save_pretrained(self, folder: Path) -> None:
        tensors = self.whole()
        if self.gang.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self.policy.save_pretrained(folder, tensors)

    def save(self, folder: Path) -> None:
        zero.save(self.engine, str(folder), {"rng": torch.get_rng_state()})

    def load(self, folder: Path) -> None:
        torch.set_rng_state(zero.load(self.engine, str(folder))["rng"])

    def load_weights(self, folder: Path) -> None:
        zero.replace_tensors(self.engine, self.policy.published(folder), stage=self.settings.zero_stage)

    def close(self) -> None:
        self.engine.destroy()
        self.gang.leave()


def columns(rollouts: Sequence[Rollout]) -> tuple[list[Actions], list[Actions], list[float]]:
    """Arguments of `Policy.logprobs`."""
    return [one.context for one in rollouts], [one.actions for one in rollouts], [one.temperature for one in rollouts]


def rollout_of(one: Pass, device: torch.device) -> Tensor:
    """(N,) which rollout an action belongs to."""
    lengths = torch.tensor([len(each.actions) for each in one.rollouts])
    return torch.arange(len(one.rollouts)).repeat_interleave(lengths).to(device)


def device_of(place: int, ranks: int) -> str:
    """A GPU for each rank, or the CPU for all. Raises Misconfigured for more ranks than GPUs."""
    if not torch.cuda.is_available():
        return "cpu"
    if ranks > torch.cuda.device_count():
        raise Misconfigured(
            f"[train] ranks = {ranks}, but the trainer sees {torch.cuda.device_count()} GPUs "
            f"(CUDA_VISIBLE_DEVICES = {os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); nothing was started; "
            "lower ranks, or let it see one GPU for each"
        )
    return f"cuda:{place}"


def options_of(settings: TrainSection) -> DeepSpeedOptions:
    """Raises Misconfigured."""
    return load_section(DeepSpeedOptions, "train.options", settings.options)


def of_rank(
    rank: int,
    *,
    model_folder: Path,
    settings: TrainSection,
    algorithm: AlgorithmSection,
    model: ModelSection,
    seed: int,
) -> DeepSpeedLearner:
    """This rank's learner, once all ranks have met. Raises Misconfigured, or Transient when they do not meet."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = device_of(int(os.environ.get("LOCAL_RANK", "0")), settings.ranks)
    if device == "cpu" and model.dtype == "float16":
        raise Misconfigured(
            '[model] dtype = "float16" on a machine without a GPU; nothing was started; use float32 or bfloat16'
        )
    name = options_of(settings).policy
    policy = policies.create(name, model_folder, dtype=model.dtype, lora=settings.lora, seed=seed, device=device)
    chosen = create_algorithm(algorithm)
    reference = None
    if chosen.needs_reference:
        reference = policies.create(name, model_folder, dtype=model.dtype, lora=None, seed=seed, device=device)
        reference.module.requires_grad_(False)
    gang = gather(rank, settings.ranks, backend="gloo" if device == "cpu" else "nccl")
    return DeepSpeedLearner(policy, chosen, algorithm.correction, settings, gang, reference=reference)
