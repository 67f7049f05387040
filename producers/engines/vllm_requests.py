"""What vLLM is asked for a group or for scoring, and how its answers are read.

For: pure functions between our values and vLLM's. Not for: an engine (`vllm_core`, `vllm_async`).

A group is one request for G siblings. Recorded is the log-probability, after temperature, of each sampled token; where
the temperature is 0, its log-probability at temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from vllm import RequestOutput, SamplingParams, TokensPrompt
from vllm.logprobs import FlatLogprobs
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind

from broker.errors import Broken, Poison
from broker.messages import Actions, Group, Prompt, Rollouts
from producers.engines.base import Continuation
from producers.engines.siblings import Decode, Sibling, Siblings
from producers.engines.vllm import COLDEST

WAITING = 8
"""One group waits for every so many that run, so that a row that ends is filled in the same step."""

FIRST, LATER = -1, 0
"""Priorities of scoring and of sampling: the smaller goes first."""

NO_VERSION = "default"
"""vLLM's label of the weights it started with."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the model as vLLM serves it."""

    longest: int
    vocabulary: int

    def check_prompt(self, prompt: Prompt) -> None:
        """Raises Poison when such a group can never be sampled."""
        self.check_ids("context", prompt.actions)
        if len(prompt.actions) == 0 or prompt.max_actions < 1:
            raise Poison(
                f"{len(prompt.actions)} prompt tokens and {prompt.max_actions} actions: vLLM continues one token or "
                "more by one or more; the group is buried; mend what the prompt source sends"
            )
        total = len(prompt.actions) + prompt.max_actions
        if total > self.longest:
            raise Poison(
                f"{len(prompt.actions)} prompt tokens and {prompt.max_actions} more are {total}, over the "
                f"{self.longest} that vLLM serves; the group is buried; shorten the prompt, lower [rollout] "
                "max_tokens, or, if the model could do more, raise options.kv_cache_mb or options.max_model_len"
            )
        if 0 < prompt.temperature < COLDEST:
            raise Poison(
                f"temperature {prompt.temperature:g}: vLLM samples at {COLDEST:g} or above, or greedily at 0; the "
                "group is buried; set [rollout] temperature to one of these"
            )

    def check_continuation(self, each: Continuation) -> None:
        """Raises Poison when vLLM cannot score it: its scoring samples one token more."""
        self.check_ids("context", each.context)
        self.check_ids("continuation", each.continuation)
        total = len(each.context) + len(each.continuation)
        if len(each.context) == 0 or total >= self.longest:
            raise Poison(
                f"a context of {len(each.context)} and a continuation of {len(each.continuation)} tokens: vLLM scores "
                f"after one token or more, and below {self.longest} in all; the group is buried; shorten it"
            )

    def check_ids(self, what: str, ids: Actions) -> None:
        if ids.dtype.kind != "i" or ids.ndim != 1:
            raise Poison(
                f"a {what} of {ids.shape} {ids.dtype}: vLLM takes token ids; the group is buried; use another engine"
            )
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self.vocabulary):
            raise Poison(
                f"token ids {ids.min()}..{ids.max()} of a {what} are outside the model's vocabulary of "
                f"{self.vocabulary}; the group is buried; the feeder's tokenizer is not this model's"
            )


def capacity(max_rows: int, group_size: int) -> int:
    """Groups worth having in hand."""
    fitting = max(1, max_rows // group_size)
    return fitting + max(1, fitting // WAITING)


def tokens(*parts: Actions) -> TokensPrompt:
    return TokensPrompt(prompt_token_ids=[int(each) for part in parts for each in part])


def sampling(prompt: Prompt) -> SamplingParams:
    """G siblings, of which vLLM gives number i the seed `first_seed + i`; greedy ones are all the same: one is asked
    for.
    """
    return SamplingParams(
        n=prompt.size if prompt.temperature > 0 else 1,
        temperature=prompt.temperature,
        seed=first_seed(prompt.seed),
        max_tokens=prompt.max_actions,
        stop_token_ids=list(prompt.stop),
        ignore_eos=True,  # the prompt says what ends a rollout, the model's end token included
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def first_seed(seed: int) -> int:
    """Far from the first seed of any other group, so that no two groups share siblings' seeds."""
    return int(np.random.SeedSequence(seed % 2**64).generate_state(1, np.uint64)[0] >> np.uint64(2))


def rollouts(group: Group, output: RequestOutput, decode: Decode) -> Rollouts:
    """The finished siblings. Raises Broken for log-probabilities that are no numbers."""
    sampled = [sibling(each) for each in sorted(output.outputs, key=lambda each: each.index)]
    siblings = Siblings(group)
    for index in range(group.prompt.size):
        siblings.finish(index, sampled[index % len(sampled)])
    result = siblings.rollouts(decode)
    if not np.isfinite(result.logprobs).all():
        raise Broken(
            f"versions {result.oldest_version} to {result.newest_version} give log-probabilities that are no numbers; "
            "sampling stops and the groups in hand go back to their stream; look at the trainer's loss and gradient "
            "norm"
        )
    return result


def sibling(output: CompletionOutput) -> Sibling:
    actions = np.asarray(output.token_ids, np.int32)
    if output.finish_reason not in ("stop", "length") or not isinstance(output.logprobs, FlatLogprobs):
        raise Broken(
            f"vLLM ended a rollout after {len(actions)} tokens for {output.finish_reason!r}; sampling stops and the "
            "groups in hand go back to their stream; vLLM's own log says more (VLLM_LOGGING_LEVEL=INFO)"
        )
    versions = np.full(len(actions), -1, np.int32)
    for span in output.weight_versions or ():
        versions[span.start : span.end] = -1 if span.version == NO_VERSION else int(span.version)
    return Sibling(actions, np.asarray(output.logprobs.logprobs, np.float32), versions, output.finish_reason)


def scoring(temperature: float) -> SamplingParams:
    """vLLM scores a prompt at temperature 1 only; for another one, the whole distribution is asked for."""
    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0 if divisor(temperature) == 1 else -1,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scored(output: RequestOutput, each: Continuation) -> NDArray[np.float32]:
    """(n,) log-probabilities of a continuation of n tokens, at its temperature."""
    found = output.prompt_logprobs
    assert isinstance(found, FlatLogprobs)
    values = np.asarray(found.logprobs, np.float64)
    starts, ends = (
        np.asarray(each_, np.int64)[len(each.context) :] for each_ in (found.start_indices, found.end_indices)
    )
    rows = [values[start:end] for start, end in zip(starts, ends, strict=True)]
    return np.array([at_temperature(row, divisor(each.temperature)) for row in rows], np.float32)


def at_temperature(row: Sequence[float] | NDArray[np.float64], temperature: float) -> float:
    """`row`: the token's log-probability, then, unless the temperature is 1, those of the whole vocabulary.

    log p_T(a) = log p(a) / T - log Σ exp(log p / T)
    """
    tempered = np.asarray(row) / temperature
    return float(tempered[0] if temperature == 1 else tempered[0] - np.logaddexp.reduce(tempered[1:]))


def divisor(temperature: float) -> float:
    return temperature if temperature > 0 else 1.0
