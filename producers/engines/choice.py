"""Which engine `auto` means: a table of what was measured on the runs that ship.

For: pure functions of facts. Not for: finding the facts out (`surroundings`), or building an engine.

Completions for each processor second of one thread, as the run's producer would sample them; AMD EPYC, 2 busy cores,
float32, torch 2.13, vLLM 0.32 without its compiler, medians of three (`benchmarks/engine_choice.py`):

| run | model | in hand, actions at most | torch | vLLM |
| --- | --- | --- | --- | --- |
| `addition` | 0.3 M | 576 × 4 | 14,100 | 2,850 |
| `long-tail` | 0.3 M | 288 × 64, 12 on average | 2,050 | 1,160 |
| `smollm2-sentiment` | 135 M | 32 × 20 | 21.8 | 17.1 |
| `reasoning-gym` | 135 M | 64 × 6 | 77.1 | 33.8 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LARGEST = 135_000_000
"""Parameters of the largest model that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the choice depends on."""

    parameters: int
    """Of the model."""
    gpus: int
    """That this process may use."""
    has_vllm: bool


@dataclass(frozen=True, slots=True)
class Choice:
    engine: str
    reason: str
    """One sentence, with the numbers."""


class Measured(NamedTuple):
    """One line of the table: models of up to so many parameters on a CPU."""

    parameters: int
    engine: str
    finding: str


ON_CPU = (
    Measured(
        20_000_000, "torch", "it samples 1.8 to 5 times as fast as vLLM for the shipped runs of such small models"
    ),
    Measured(200_000_000, "torch", "it samples 1.3 to 2.3 times as fast as vLLM for the shipped runs of SmolLM2-135M"),
)


def choose(facts: Facts) -> Choice:
    """The engine for this model on this machine, and why."""
    size = f"{facts.parameters / 1e6:,.1f} M parameters"
    if facts.gpus and facts.has_vllm:
        return Choice("vllm", f"vllm for {size}: there is a GPU, and vLLM is made for it")
    if facts.gpus:
        return Choice("torch", f"torch for {size}, on the CPU: the GPU would need vLLM, and vllm is not installed")
    for line in ON_CPU:
        if facts.parameters <= line.parameters:
            return Choice(line.engine, f"{line.engine} for {size} on a CPU: {line.finding}")
    return Choice(
        "torch",
        f"torch for {size} on a CPU: nothing so large was measured; at {LARGEST / 1e6:.0f} M it was faster than vLLM",
    )
