"""Settings of the producers: `[prompts]` and `[rollout]`. Imports no heavy library."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from broker.settings import Section


class EvalPrompts(Section):
    """`[prompts] eval`: held-out prompts, generated greedily by the same producers and scored by the same rewards."""

    size: int = Field(default=0, ge=0)
    """Prompts per evaluation; 0 switches evaluation off."""
    every: int = Field(default=20, ge=1)
    """Versions between evaluations; the first and the last version are always measured."""
    group_size: int = Field(default=1, ge=1)
    """Siblings per held-out prompt (pass@k)."""
    temperature: float = Field(default=0.0, ge=0)
    """0 takes the likeliest action each time."""


class PromptsSection(Section):
    """`[prompts]`"""

    source: str | list[dict[str, Any]] = "addition"
    """A source's name, a dotted path, or a weighted list `[{source = …, weight = …, …}]`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the source (`path`, `split`, `prompt_field`, `task`, `size`, …)."""
    passes: int | None = Field(default=None, ge=1)
    """Exact number of epochs over finite sources; none repeats for ever."""
    eval: EvalPrompts = EvalPrompts()
    """Held-out prompts, by which a run is measured."""


class RolloutSection(Section):
    """`[rollout]`"""

    engine: str = "auto"
    """`torch`, `vllm`, `scripted`, `auto` (chooses and says why), or a dotted path."""
    group_size: int = Field(default=8, ge=1)
    """Siblings: rollouts of each prompt."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling; the trainer takes it into account."""
    max_tokens: int = Field(default=128, ge=1)
    """Longest rollout."""
    stop: list[str] = Field(default_factory=list)
    """Further single tokens that end a rollout, beside the model's own end token."""
    top_p: float = 1.0
    """Refused below 1: the trainer cannot correct for a truncated distribution."""
    top_k: int = 0
    """Refused above 0, for the same reason."""
    update: Literal["between_groups", "in_flight", "drain"] = "between_groups"
    """How new weights get in: `between_groups` lets running groups end under the old ones, `drain` also stops reading
    until then, `in_flight` loads at once and goes on with the groups.
    """
    max_rows: int = Field(default=512, ge=1)
    """Rollouts sampled at the same time by one engine."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the engine."""


class TorchOptions(Section):
    """`[rollout] options` of the engine `torch`."""

    forward: Literal["auto", "transformers"] = "auto"
    """`transformers` always goes through the model's own class; `auto` takes the short pass where it is the same."""
    cache_mb: int = Field(default=2048, ge=1)
    """Most memory for keys and values; groups wait while it would be passed."""


class VllmOptions(Section):
    """`[rollout] options` of the engine `vllm`."""

    kv_cache_mb: int | None = Field(default=None, ge=1)
    """Memory for keys and values; none is 512 on a CPU, and vLLM's own share of the device on a GPU."""
    max_model_len: int = Field(default=-1, ge=-1)
    """Longest context and continuation together; -1 is the model's own length, or what the cache holds if that is
    less.
    """
    deadline_s: float = Field(default=1800.0, gt=0)
    """Longest wait for one group, one load or one scoring; only vLLM's own process can keep one waiting."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Any other argument of `vllm.EngineArgs` (`tensor_parallel_size`, `gpu_memory_utilization`, `quantization`, …)."""
