"""Supervised steps on right answers before reinforcement begins, so that some rollouts earn a reward.

For: small models that know nothing yet. Not for: fine-tuning in earnest. Stops as soon as held-out greedy accuracy
reaches its mark, which is looked at often: the built-in model climbs from 0.1 to 0.9 within a hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from broker.messages import Actions
from broker.settings import WarmStart
from consumers.packing import Shape, micro_batches
from consumers.policies.causal_lm import CausalLm, columns, places

WARMUP_STEPS = 50

AT_ONCE = 512
"""Examples in one forward pass of the measurement."""

TOKENS_AT_ONCE = 2048
"""In one forward pass of training, padding included: a long tail of lengths would be mostly padding in a single one."""


@dataclass(frozen=True, slots=True)
class Example:
    context: Actions
    answer: Actions
    """Its last token is the end token."""


def warm_start(
    source: Path,
    target: Path,
    settings: WarmStart,
    batch_at: Callable[[int, int], Sequence[Example]],
    held_out: Sequence[Example],
    *,
    dtype: str,
    progress: Callable[[int, float], None],
) -> float:
    """Train the model in `source`, in float32, and save it to `target` in `dtype`; returns held-out greedy accuracy.

    `batch_at(step, size)` gives the examples of a step; `progress(step, accuracy)` is called at every look.
    """
    policy = CausalLm(source, dtype="float32")
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.0)
    accuracy = greedy_accuracy(policy, held_out)
    progress(0, accuracy)
    for step in range(1, settings.max_steps + 1):
        if accuracy >= settings.until:
            break
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, step / WARMUP_STEPS)
        train(policy, optimizer, batch_at(step, settings.batch))
        if step % settings.check_every == 0 or step == settings.max_steps:
            accuracy = greedy_accuracy(policy, held_out)
            progress(step, accuracy)
    saved = {name: tensor.to(getattr(torch, dtype)) for name, tensor in policy.module.named_parameters()}
    policy.save_pretrained(target, saved)
    return accuracy


def train(policy: CausalLm, optimizer: torch.optim.Optimizer, examples: Sequence[Example]) -> None:
    """One step down the mean cross-entropy of the answers' tokens, in passes of examples of like lengths."""
    tokens = sum(len(one.answer) for one in examples)
    for indices in micro_batches([Shape(len(one.answer), len(one.context)) for one in examples], TOKENS_AT_ONCE):
        part = [examples[index] for index in sorted(indices)]
        contexts, answers = [one.context for one in part], [one.answer for one in part]
        loss = -policy.logprobs(policy.module, contexts, answers, [1.0] * len(part)).sum() / tokens
        loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.module.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def greedy_accuracy(policy: CausalLm, examples: Sequence[Example]) -> float:
    """Share of examples that greedy decoding would answer exactly.

    It does so if and only if each right token is the likeliest after the right ones before it: one forward pass tells.
    """
    wrong: list[bool] = []
    for start in range(0, len(examples), AT_ONCE):
        part = examples[start : start + AT_ONCE]
        batch = columns([one.context for one in part], [one.answer for one in part], [1.0] * len(part))
        logits, ids, _ = policy.module.in_one_pass(batch)
        rows, _ = places(batch.lengths)
        wrong += (torch.bincount(rows[logits.argmax(-1) != ids], minlength=len(part)) > 0).tolist()
    return 1.0 - float(np.mean(wrong))
