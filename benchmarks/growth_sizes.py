"""What one size asks of the learner and of the sampler: processor time and memory, each in a process of its own.

For: `growth`, which lets the sizes grow and holds the figures against the laws here. Not for: whole runs.

A law counts what a causal transformer must compute or keep, and nothing else; it is drawn through the first size, so it
says how a figure should grow, never how large it should be.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from broker.messages import Group, Prompt, Rollouts, Scores

MB = 1 << 20
VOCABULARY = 64
MICRO_TOKENS = 8192
"""The learner's budget for a forward pass, about what the first size's batch takes: larger batches take more passes."""
MAX_ROWS = 256
"""Rollouts sampled at the same time: those of the first size; larger batches take turns."""
LEARNER_BYTES = 16
"""A parameter, its gradient and two moments, four bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and a batch."""

    hidden: int = 128
    inner: int = 256
    heads: int = 4
    layers: int = 2
    groups: int = 32
    siblings: int = 8
    prompt: int = 8
    """Tokens."""
    actions: int = 24
    """Tokens of each rollout."""

    @property
    def parameters(self) -> int:
        """Embeddings are tied; norms count."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.inner + 2 * self.hidden
        return self.layers * layer + (VOCABULARY + 1) * self.hidden

    @property
    def tokens(self) -> int:
        """That go through the model: a prompt once for its siblings, and each action but the last."""
        return self.groups * (self.prompt + self.siblings * (self.actions - 1))

    @property
    def pairs(self) -> float:
        """Of a token and one before it, in all."""
        prompts = self.prompt**2 / 2
        later = self.actions - 1
        return self.groups * (prompts + self.siblings * (later * self.prompt + later**2 / 2))

    @property
    def work(self) -> float:
        """Multiplications of a forward pass: each weight for each token, two widths a layer for each pair of tokens."""
        return self.tokens * self.parameters + 2 * self.hidden * self.layers * self.pairs

    @property
    def attention(self) -> float:
        """The quadratic part of the work."""
        return 1 - self.tokens * self.parameters / self.work

    @property
    def cache_mb(self) -> float:
        """Keys and values of the rows sampled at the same time, and the weights."""
        rows = min(MAX_ROWS // self.siblings, self.groups) * self.siblings
        columns = self.prompt + self.actions
        return 4 * (2 * self.hidden * self.layers * rows * columns + self.parameters) / MB

    @property
    def state_mb(self) -> float:
        return LEARNER_BYTES * self.parameters / MB

    @property
    def activations(self) -> float:
        """What one pass keeps for going backward, in unknown units: so much a layer for each token and width."""
        return min(self.tokens, MICRO_TOKENS) * self.layers * self.hidden


def groups_of(size: Size) -> list[Group]:
    """Whole groups of this size; actions are drawn, half of the rollouts are right."""
    draw = np.random.default_rng(0)
    return [with_rollouts(size, index, draw) for index in range(size.groups)]


def with_rollouts(size: Size, index: int, draw: np.random.Generator) -> Group:
    number = size.siblings * size.actions
    rewards = (np.arange(size.siblings) % 2).astype(np.float32)
    return Group(
        id=f"growth/0/{index}",
        kind="train",
        prompt=Prompt(
            text="p" * size.prompt,
            actions=draw.integers(3, VOCABULARY, size.prompt).astype(np.int32),
            size=size.siblings,
            seed=index,
            max_actions=size.actions,
            task="growth",
        ),
        rollouts=Rollouts(
            texts=("a" * size.actions,) * size.siblings,
            actions=draw.integers(3, VOCABULARY, number).astype(np.int32),
            offsets=np.arange(0, number + 1, size.actions, dtype=np.int32),
            logprobs=np.full(number, -np.log(VOCABULARY), np.float32),
            mask=np.ones(number, np.uint8),
            spans=np.array([(sibling, 0, size.actions, 0) for sibling in range(size.siblings)], np.int32),
            finishes=("length",) * size.siblings,
        ),
        scores=Scores(rewards=rewards, parts={"growth": rewards}),
    )


def build(size: Size, folder: Path) -> None:
    """A model folder with random weights; runs in a process of its own, as all below."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from consumers.policies import tiny_llama

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tiny_llama.tokenizer().save_pretrained(folder)


def learner(size: Size, folder: Path, repeats: int) -> dict[str, list[float]]:
    """Optimizer steps on one whole batch."""
    from broker.settings import ModelSection
    from consumers.learners import create, preload
    from consumers.settings import AlgorithmSection, TrainSection

    settings = TrainSection(groups=size.groups, micro_tokens=MICRO_TOKENS, lr=1e-6)
    preload(folder, settings)
    groups = groups_of(size)
    advantages = [2 * group.scores.rewards - 1 for group in groups if group.scores]
    before = settled_mb()
    made = create(
        "deepspeed", model_folder=folder, settings=settings, algorithm=AlgorithmSection(), model=ModelSection(), seed=0
    )
    figures = repeated(lambda: made.step(groups, advantages, version=0, seed=0), repeats, before)
    made.close()
    return figures


def sampler(size: Size, folder: Path, repeats: int) -> dict[str, list[float]]:
    """The bare engine on one whole batch."""
    from producers.engines import factory, preload
    from producers.settings import RolloutSection

    settings = RolloutSection(
        engine="torch", group_size=size.siblings, max_tokens=size.actions, max_rows=max(MAX_ROWS, size.siblings)
    )
    preload("torch", folder)
    groups = groups_of(size)
    before = settled_mb()
    core = factory("torch")(model_folder=folder, settings=settings, seed=0)
    core.load(folder, 0)

    def batch() -> None:
        for group in groups:
            core.add(group)
        while not core.is_idle:
            core.step()

    figures = repeated(batch, repeats, before)
    core.close()
    return figures


WORK: dict[str, Callable[[Size, Path, int], dict[str, list[float]]]] = {"learner": learner, "sampler": sampler}


def repeated(work: Callable[[], object], repeats: int, before_mb: float) -> dict[str, list[float]]:
    """Processor seconds of each repeat after one that warms up, and how far memory rose above `before_mb`."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    work()
    seconds: list[float] = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(round(time.process_time() - began, 4))
    return {"processor (s)": seconds, "peak memory (MB)": [round(status_mb("VmHWM") - before_mb, 2)]}


def settled_mb() -> float:
    """Resident now, with everything imported and nothing loaded."""
    gc.collect()
    return status_mb("VmRSS")


def status_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
