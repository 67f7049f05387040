"""vLLM in a process of its own, for GPUs: many groups asked for at once, answered as they finish.

For: `Engine` over `AsyncLLM`. Not for: CPUs (`vllm_core` is faster there), what is asked of vLLM (`vllm_requests`).

New weights come while rows are in flight: vLLM is paused with all its rows kept and its cache cleared, each worker
reads the file, and after the pause every row reads its context again under the new weights.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from vllm import AsyncEngineArgs, RequestOutput, SamplingParams, TokensPrompt
from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from broker.errors import Broken
from broker.messages import Group, Rollouts
from producers.engines import vllm_requests as requests
from producers.engines import vllm_tied_head
from producers.engines.base import Continuation
from producers.engines.texts import Reader
from producers.engines.vllm_arguments import arguments, misconfigured
from producers.engines.vllm_checkpoint import checked, model_shapes
from producers.settings import RolloutSection, VllmOptions

CLOSE_S = 30.0
"""Longest wait for vLLM's process to leave."""


class VllmAsync:
    """See `base.Engine`."""

    def __init__(
        self, folder: Path, settings: RolloutSection, options: VllmOptions, *, seed: int, on_cpu: bool
    ) -> None:
        """Blocks until vLLM's process is ready. Raises Misconfigured when it does not start on the folder."""
        self.reader = Reader(folder)
        self.shapes = model_shapes(folder)
        given = arguments(folder, settings, options, seed=seed, on_cpu=on_cpu)
        try:
            self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**given))
        except (ValueError, OSError, RuntimeError, NotImplementedError) as error:
            raise misconfigured(folder, error) from error
        model = self.engine.model_config
        self.tied = bool(model.hf_text_config.tie_word_embeddings)
        if self.tied and on_cpu:
            vllm_tied_head.check_version()
        self.limits = requests.Limits(model.max_model_len, model.get_vocab_size())
        self.capacity = requests.capacity(settings.max_rows, settings.group_size)
        self.deadline_s = options.deadline_s
        self.version = -1
        self.names = (str(number) for number in itertools.count())

    async def generate(self, group: Group) -> Rollouts:
        self.limits.check_prompt(group.prompt)
        async with self.answering(f"group {group.id}"):
            prompt = requests.tokens(group.prompt.actions)
            output = await self.ask(prompt, requests.sampling(group.prompt), priority=requests.LATER)
        return requests.rollouts(group, output, self.reader)

    async def load(self, folder: Path, version: int) -> None:
        """Raises Transient or Broken (see `vllm_checkpoint.checked`) before anything is touched, Broken half-way."""
        path = await asyncio.to_thread(checked, folder, self.shapes, tied=self.tied)
        async with self.answering(f"version {version}"):
            await self.engine.pause_generation(mode="keep", clear_cache=True)
            await self.engine.start_weight_update()
            await self.engine.update_weights(WeightTransferUpdateRequest(update_info={"path": str(path)}))
            await self.engine.finish_weight_update(weight_version=str(version))
            await self.engine.resume_generation()
        self.version = version

    async def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        for each in sequences:
            self.limits.check_continuation(each)
        async with self.answering(f"scores of {len(sequences)} sequences"), asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self.score(each)) for each in sequences]
        return [task.result() for task in asked]

    async def score(self, each: Continuation) -> NDArray[np.float32]:
        prompt = requests.tokens(each.context, each.continuation)
        output = await self.ask(prompt, requests.scoring(each.temperature), priority=requests.FIRST)
        return requests.scored(output, each)

    async def ask(self, prompt: TokensPrompt, params: SamplingParams, *, priority: int) -> RequestOutput:
        """The last word on one request; a caller that gives up takes the request back."""
        last: RequestOutput | None = None
        async for output in self.engine.generate(prompt, params, next(self.names), priority=priority):
            last = output
        if last is None:
            raise Broken("vLLM ended a request without an answer; the engine is started again")
        return last

    @asynccontextmanager
    async def answering(self, what: str) -> AsyncGenerator[None]:
        """All that is asked of vLLM's process goes through here: a deadline, and one error when it is not met."""
        after = "sampling stops, the groups in hand go back to their stream, and the engine is started again"
        try:
            async with asyncio.timeout(self.deadline_s):
                yield
        except TimeoutError as error:
            raise Broken(
                f"{what}: vLLM's process did not answer in {self.deadline_s:g} s; {after}; raise [rollout] "
                "options.deadline_s if it is only slow"
            ) from error
        except (EngineDeadError, RuntimeError) as error:
            raise Broken(
                f"{what}: vLLM's process failed: {type(error).__name__}: {error}; {after}; its log says more"
            ) from error

    async def close(self) -> None:
        """Raises Broken when vLLM's process does not leave by the deadline."""
        try:
            await asyncio.wait_for(asyncio.to_thread(self.engine.shutdown), CLOSE_S)
        except TimeoutError as error:
            raise Broken(f"vLLM's process is still there after {CLOSE_S:g} s; end it by hand") from error
