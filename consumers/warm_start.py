"""Supervised steps on right answers before reinforcement begins, so that some rollouts earn a reward.

For: tiny models that know nothing. Not for: fine-tuning in earnest. Stops as soon as held-out greedy accuracy reaches its
mark, looked at often: the tiny model's accuracy climbs from 0.1 to 0.9 within a hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from broker.messages import Actions
from broker.settings import WarmStart
from consumers.policies.causal_lm import CausalLm, padded

WARMUP_STEPS = 50


@dataclass(frozen=True, slots=True)
class Example:
    context: Actions
    answer: Actions
    """Its last token is the end token."""


def warm_start(
    folder: Path,
    settings: WarmStart,
    batch_at: Callable[[int, int], Sequence[Example]],
    held_out: Sequence[Example],
    *,
    progress: Callable[[int, float], None],
) -> float:
    """Train the model in `folder` in place; returns held-out greedy accuracy at the end.

    `batch_at(step, size)` gives the examples of a step; `progress(step, accuracy)` is called at every look.
    """
    policy = CausalLm(folder, dtype="float32", lora=None)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=settings.lr, weight_decay=0.01, betas=(0.9, 0.99))
    accuracy = greedy_accuracy(policy, held_out)
    progress(0, accuracy)
    for step in range(1, settings.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, step / WARMUP_STEPS)
        train_step(policy, optimizer, batch_at(step, settings.batch))
        if step % settings.check_every == 0 or step == settings.max_steps:
            accuracy = greedy_accuracy(policy, held_out)
            progress(step, accuracy)
            if accuracy >= settings.until:
                break
    policy.export(folder)
    return accuracy


def train_step(policy: CausalLm, optimizer: torch.optim.Optimizer, examples: Sequence[Example]) -> None:
    logprobs = policy.logprobs(
        policy.module, [one.context for one in examples], [one.answer for one in examples], [1.0] * len(examples)
    )
    (-logprobs.mean()).backward()
    torch.nn.utils.clip_grad_norm_(policy.module.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def greedy_accuracy(policy: CausalLm, examples: Sequence[Example]) -> float:
    """Share of examples whose every answer token is the greedy choice, given the right ones before it.

    That equals exact match of greedy decoding: both break at the first wrong token.
    """
    ids, rows, columns, targets, _ = padded([one.context for one in examples], [one.answer for one in examples], [1.0] * len(examples))
    hidden = policy.causal.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[rows, columns]
    wrong = policy.causal.get_output_embeddings()(hidden).argmax(-1) != targets
    missed = functional.one_hot(rows, len(examples))[wrong].sum(0) > 0
    return 1.0 - float(np.mean(missed.numpy()))
