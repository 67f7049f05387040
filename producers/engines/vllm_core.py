"""vLLM inside this process, one step at a time.

For: `EngineCore` on a CPU. Not for: GPUs (`vllm_async`), what is asked of vLLM (`vllm_requests`).

Between two steps nothing runs, so weights are changed there without a pause: vLLM's own weight transfer, then every
running row goes back to the waiting ones and reads its context again under the new weights.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from vllm import EngineArgs, LLMEngine, RequestOutput
from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

from broker.errors import Broken
from broker.messages import Group, Rollouts
from producers.engines import vllm_requests as requests
from producers.engines import vllm_tied_head
from producers.engines.base import Continuation
from producers.engines.texts import Reader
from producers.engines.vllm_arguments import arguments, misconfigured
from producers.engines.vllm_checkpoint import checked, model_shapes
from producers.settings import RolloutSection, VllmOptions


class VllmCore:
    """See `base.EngineCore`."""

    def __init__(
        self, folder: Path, settings: RolloutSection, options: VllmOptions, *, seed: int, on_cpu: bool
    ) -> None:
        """Raises Misconfigured when vLLM does not start on the folder."""
        self.reader = Reader(folder)
        self.shapes = model_shapes(folder)
        given = arguments(folder, settings, options, seed=seed, on_cpu=on_cpu)
        self.set_num_threads = torch.set_num_threads
        self.made_group = not torch.distributed.is_initialized()
        try:
            self.engine = LLMEngine.from_engine_args(EngineArgs(**given))
        except (ValueError, OSError, RuntimeError, NotImplementedError) as error:
            raise misconfigured(folder, error) from error
        model = self.engine.model_config
        self.tied = bool(model.hf_text_config.tie_word_embeddings)
        if self.tied and on_cpu:
            vllm_tied_head.check_version()
        self.limits = requests.Limits(model.max_model_len, model.get_vocab_size())
        self.capacity = requests.capacity(settings.max_rows, settings.group_size)
        self.deadline_s = options.deadline_s
        self.names = (str(number) for number in itertools.count())
        self.groups: dict[str, Group] = {}
        self.finished: list[tuple[str, Rollouts]] = []
        self.scores: dict[str, RequestOutput] = {}
        self.failure: Broken | None = None

    @property
    def is_idle(self) -> bool:
        return not self.groups and not self.finished

    def add(self, group: Group) -> None:
        self.limits.check_prompt(group.prompt)
        name = next(self.names)
        self.engine.add_request(
            name, requests.tokens(group.prompt.actions), requests.sampling(group.prompt), priority=requests.LATER
        )
        self.groups[name] = group

    def step(self) -> list[tuple[str, Rollouts]]:
        if self.failure:
            raise self.failure
        if self.groups:
            self.advance()
        finished, self.finished = self.finished, []
        return finished

    def advance(self) -> None:
        """One of vLLM's steps, and whatever it finished put where it belongs."""
        for output in self.engine.step():
            assert isinstance(output, RequestOutput)
            group = self.groups.pop(output.request_id, None)
            if group is None:
                self.scores[output.request_id] = output
            else:
                self.finished.append((group.id, requests.rollouts(group, output, self.reader)))

    def load(self, folder: Path, version: int) -> None:
        """Raises Transient or Broken (see `vllm_checkpoint.checked`) before anything is touched, Broken half-way."""
        path = checked(folder, self.shapes, tied=self.tied)
        try:
            self.engine.collective_rpc("start_weight_update")
            self.engine.collective_rpc("update_weights", kwargs={"update_info": {"path": str(path)}})
            self.engine.collective_rpc("finish_weight_update")
            self.engine.set_weight_version(str(version))
            self.engine.reset_prefix_cache(reset_running_requests=True)
        except Exception as error:
            self.failure = Broken(
                f"version {version}: vLLM failed half-way through its new weights: {type(error).__name__}: {error}; "
                "sampling stops and the groups in hand go back to their stream; the engine is started again"
            )
            raise self.failure from error

    def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        """Scored before groups that wait; rows in flight go on meanwhile. Raises Broken after the deadline."""
        for each in sequences:
            self.limits.check_continuation(each)
        names = [self.score(each) for each in sequences]
        deadline = time.monotonic() + self.deadline_s
        while not self.scores.keys() >= set(names):
            if time.monotonic() > deadline:
                raise Broken(
                    f"vLLM scored {len(self.scores)} of {len(names)} sequences in {self.deadline_s:g} s; sampling "
                    "stops and the groups in hand go back to their stream; raise [rollout] options.deadline_s if it "
                    "is only slow"
                )
            self.advance()
        return [requests.scored(self.scores.pop(name), each) for name, each in zip(names, sequences, strict=True)]

    def score(self, each: Continuation) -> str:
        name = next(self.names)
        self.engine.add_request(
            name,
            requests.tokens(each.context, each.continuation),
            requests.scoring(each.temperature),
            priority=requests.FIRST,
        )
        return name

    def close(self) -> None:
        """Leave the process as it was found: no cache, no process group, and torch's own setter of threads."""
        self.groups.clear()
        self.engine.engine_core.shutdown()
        destroy_model_parallel()
        if self.made_group:
            destroy_distributed_environment()
        torch.set_num_threads = self.set_num_threads
