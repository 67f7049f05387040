"""Which engine `auto` means: a table of what was measured on the runs that ship.

For: pure functions of facts. Not for: finding the facts out (`surroundings`), or building an engine.

Tokens a second of one thread in float32 with log-probs, AMD EPYC (`benchmarks/README.md` names the commands):

| model | rows × actions | torch | vLLM |
| --- | --- | --- | --- |
| 0.3 M parameters (`addition`) | 512 × 4 | 66,000 | 12,800 |
| 0.3 M, lengths varying (`long-tail`) | 128 × about 26 | 16,000 | 13,100 |
| 135 M (`smollm2-sentiment`) | 16 × 20 | 350 | 280 |
| 135 M | 64 × 20 | 412 | 416 |
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
    Measured(20_000_000, "torch", "it samples 1.2 to 5 times as many tokens a second as vLLM with models this small"),
    Measured(
        200_000_000, "torch", "it is as fast as vLLM with 64 rows and 1.25 times as fast with 16, and starts at once"
    ),
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
        f"torch for {size} on a CPU: nothing so large was measured; at {LARGEST / 1e6:.0f} M it was no slower than "
        f"vLLM",
    )
