"""A causal language model of a Hugging Face folder: its limits, its forward pass, and new weights in place.

For: everything the sampler asks of a model. Not for: rows, sampling, versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import structlog
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from broker.errors import Broken, Misconfigured, Poison, Transient
from broker.messages import Actions
from producers.engines import torch_llama
from producers.engines.base import Continuation
from producers.engines.torch_columns import Columns, Window
from producers.engines.torch_forward import Forward, TransformersForward, places
from producers.engines.torch_linear import renew
from producers.engines.torch_sampler import tempered

log = structlog.get_logger()

AGREEMENT = 1e-4
"""Largest difference, in nats, of the short pass from transformers' own for it to be used."""

PASS_TOKENS = 8192
"""Most tokens in one forward pass over several columns."""

PASS_LOGITS = 1 << 24
"""Most logits kept of one forward pass."""


class Model:
    """See the module."""

    def __init__(self, folder: Path, *, forward: Literal["auto", "transformers"]) -> None:
        self.module = opened(folder)
        config = self.module.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        self.longest: int | None = getattr(config, "max_position_embeddings", None)
        self.forward: Forward = TransformersForward(self.module)
        if forward == "auto" and torch_llama.fits(self.module):
            self.forward = short_or(self.forward, self.module)
        renew(self.forward.products)
        self.cell_bytes = cell_bytes(self.forward)
        """Of the keys and values of one token."""

    def check(self, prompt: Actions, max_actions: int) -> None:
        """Raises Poison when such a rollout can never be sampled."""
        if prompt.dtype.kind != "i" or prompt.ndim != 1 or not len(prompt) or max_actions < 1:
            raise Poison(
                f"a context of {prompt.shape} {prompt.dtype} and {max_actions} actions: the torch engine continues one "
                "token id or more by one or more; the group is buried; mend what the prompt source sends"
            )
        if self.longest is not None and len(prompt) + max_actions > self.longest:
            raise Poison(
                f"{len(prompt)} prompt tokens and {max_actions} more are {len(prompt) + max_actions}, over the model's "
                f"{self.longest}; the group is buried; shorten the prompt or lower [rollout] max_tokens"
            )
        if int(prompt.min()) < 0 or int(prompt.max()) >= self.vocabulary:
            raise Poison(
                f"token ids {prompt.min()}..{prompt.max()} are outside the model's vocabulary of {self.vocabulary}; "
                f"the "
                "group is buried; the feeder's tokenizer is not this model's"
            )

    def load(self, folder: Path) -> None:
        """Copy `folder/model.safetensors` into the parameters. All names and shapes are checked before the first write.

        Raises Transient for a file that is not there or not whole, Broken for tensors that are not this model's.
        """
        path = folder / "model.safetensors"
        try:
            with safe_open(path, framework="pt") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  no dict
                targets = wanted(self.module.state_dict(), shapes, path)
                for name, parameter in targets.items():
                    parameter.copy_(file.get_tensor(name))
            renew(self.forward.products)
        except (FileNotFoundError, SafetensorError) as error:
            raise Transient(
                f"{path}: {error}; the weights served stay as they are and the load is tried again; if it lasts, the "
                "trainer's publishing or the shared disk is at fault"
            ) from error

    def logprobs(self, sequences: Sequence[Continuation]) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        """(n,) float32 for each continuation of n actions, many sequences to a pass."""
        for each in sequences:
            self.check(each.context, max(1, len(each.continuation)))
        width = max((len(each.context) + len(each.continuation) for each in sequences), default=1)
        longest = max((len(each.continuation) for each in sequences), default=0)
        size = max(1, min(PASS_TOKENS // width, PASS_LOGITS // (max(1, longest) * self.vocabulary)))
        batches = (sequences[at : at + size] for at in range(0, len(sequences), size))
        return [each for batch in batches for each in self.teacher_forced(batch)]

    def teacher_forced(self, batch: Sequence[Continuation]) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        """One pass over contexts and continuations, ending in the same column."""
        keep = max(len(each.continuation) for each in batch)
        if keep == 0:
            return [np.zeros(0, np.float32) for _ in batch]
        joined = [np.concatenate([each.context, each.continuation]).astype(np.int32) for each in batch]
        ids, starts = left_padded(joined)
        width = ids.shape[1] - 1
        positions, valid = places(starts.clamp(max=width - 1), 0, 0, width)
        logits = self.forward(ids[:, :-1], positions, valid, None, keep)
        chosen = tempered(logits, torch.tensor([each.temperature for each in batch]))
        chosen = chosen.gather(2, ids[:, -keep:, None])[:, :, 0].numpy()
        return [row[keep - len(each.continuation) :] for row, each in zip(chosen, batch, strict=True)]


def opened(folder: Path) -> PreTrainedModel:
    """The folder's model, ready to sample. Raises Misconfigured when there is none, or none that this engine can
    cache.
    """
    transformers_logging.disable_progress_bar()
    try:
        module = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(
            f"{folder}: transformers cannot open it as a causal language model: {error}; nothing was started; "
            f"[model] init "
            "must name a folder with config.json and safetensors"
        ) from error
    if getattr(module, "_is_stateful", False):
        raise Misconfigured(
            f"{folder}: {type(module).__name__} keeps a recurrent state, which the torch engine does not carry; "
            f"nothing was "
            'started; use [rollout] engine = "vllm"'
        )
    return module.eval().requires_grad_(False)


def wanted(own: Mapping[str, Tensor], found: Mapping[str, Sequence[int]], path: Path) -> dict[str, Tensor]:
    """Names in the file → parameters to copy them to. A tied parameter may come under any one of its names."""
    places_served = {own[name].data_ptr() for name in found if name in own}
    problems = [f"{name} is missing" for name, tensor in own.items() if tensor.data_ptr() not in places_served]
    problems += [f"{name} is unknown" for name in found if name not in own]
    problems += [
        f"{name} is {list(found[name])}, here {list(own[name].shape)}"
        for name in found
        if name in own and list(found[name]) != list(own[name].shape)
    ]
    if problems:
        raise Broken(
            f"{path} does not hold this model's tensors: {'; '.join(problems[:3])} ({len(problems)} in all); the "
            f"weights "
            "served stay as they are; trainer and engine must start from the same model folder"
        )
    return {name: own[name] for name in found}


def left_padded(sequences: Sequence[Actions]) -> tuple[Tensor, Tensor]:
    """(n, longest) int64 ids that end in the same column, and (n,) the column each starts in."""
    longest = max(len(each) for each in sequences)
    ids = np.zeros((len(sequences), longest), np.int64)
    for row, each in zip(ids, sequences, strict=True):
        row[longest - len(each) :] = each
    return torch.from_numpy(ids), torch.tensor([longest - len(each) for each in sequences])


@torch.inference_mode()
def cell_bytes(forward: Forward) -> int:
    """Bytes of one token's keys and values, found out with one token."""
    cells, one = Columns(), torch.zeros(1, 1, dtype=torch.int64)
    cells.reserve(1, 1, keep=0)
    forward(one, one, None, Window(cells, slice(0, 1), 0, 0, 1), 1)
    return cells.size // cells.columns


@torch.inference_mode()
def short_or(reference: Forward, module: PreTrainedModel) -> Forward:
    """The short pass if it agrees with the reference on rows of different lengths, else the reference."""
    short = torch_llama.LlamaForward(module)
    config = module.config
    width = min(12, config.max_position_embeddings)
    ids = (torch.arange(3 * width).view(3, width) * 7919) % config.vocab_size
    positions, valid = places(torch.tensor([0, width // 3, width // 2]), 0, 0, width)
    ones = torch.ones(3)
    keep = width - width // 2
    ours, theirs = (tempered(each(ids, positions, valid, None, keep), ones) for each in (short, reference))
    difference = float((ours - theirs).abs().max())
    if difference <= AGREEMENT:
        return short
    log.warning(
        "using transformers' own forward pass", reason="the short one differs", nats=difference, allowed=AGREEMENT
    )
    return reference
