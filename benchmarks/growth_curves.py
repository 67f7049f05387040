"""Curves over growing sizes, each with the law it should follow, and the exponents of both.

For: `growth` and its picture. Not for: measuring.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.growth_broker import body_bytes
from benchmarks.growth_sizes import Size

FIRST = Size()
AXES: Mapping[str, Sequence[Size]] = {
    "model": (FIRST, Size(hidden=224, inner=448, heads=7), Size(hidden=416, inner=768, heads=13)),
    "batch": [replace(FIRST, groups=FIRST.groups * factor) for factor in (1, 3, 10)],
    "group size": [replace(FIRST, siblings=FIRST.siblings * factor) for factor in (1, 3, 10)],
    "context": [replace(FIRST, prompt=FIRST.prompt * factor, actions=FIRST.actions * factor) for factor in (1, 3, 10)],
}
"""What grows → its sizes, the first of all axes the same."""
OF_AXIS: Mapping[str, Callable[[Size], float]] = {
    "model": lambda size: size.parameters,
    "batch": lambda size: size.groups,
    "group size": lambda size: size.siblings,
    "context": lambda size: size.prompt + size.actions,
}
LAWS: Mapping[str, Callable[[Size, float], float]] = {
    "learner, processor (s)": lambda size, first: first * size.work / FIRST.work,
    "learner, peak memory (MB)": lambda size, first: (
        size.state_mb + (first - FIRST.state_mb) * size.activations / FIRST.activations
    ),
    "sampler, processor (s)": lambda size, first: first * size.work / FIRST.work,
    "sampler, peak memory (MB)": lambda size, first: first + size.cache_mb - FIRST.cache_mb,
    "broker, bytes on the server": lambda size, first: first + body_bytes(size) - body_bytes(FIRST),
    "broker, processor (µs)": lambda size, first: first * body_bytes(size) / body_bytes(FIRST),
}
"""Figure → what it should be at a size, given what it is at the first."""
WORDS = {
    "learner, processor (s)": "multiplications of forward and backward",
    "learner, peak memory (MB)": "16 bytes a parameter; activations of one pass, which has a budget of tokens",
    "sampler, processor (s)": "multiplications of forward",
    "sampler, peak memory (MB)": "weights, keys and values of the rows that run at once",
    "broker, bytes on the server": "bytes of the bodies",
    "broker, processor (µs)": "bytes of the bodies: not to be passed, since part of it is the same for any body",
}
"""Figure → what its law counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One figure along one axis."""

    figure: str
    axis: str
    factors: Sequence[float]
    """How much larger each size is than the first."""
    measured: Sequence[Sequence[float]]
    """Per size, a number a repeat."""

    @property
    def medians(self) -> list[float]:
        return [statistics.median(numbers) for numbers in self.measured]

    @property
    def law(self) -> list[float]:
        return [LAWS[self.figure](size, self.medians[0]) for size in AXES[self.axis]]

    @property
    def samples(self) -> dict[str, Sequence[float]]:
        at = {f"x{factor:.3g}": numbers for factor, numbers in zip(self.factors, self.measured, strict=True)}
        laws = {f"x{factor:.3g}, law": [round(value, 4)] for factor, value in zip(self.factors, self.law, strict=True)}
        both = {"exponent": self.medians, "exponent, law": self.law}
        return {**at, **laws, **{name: [round(exponent(self.factors, values), 3)] for name, values in both.items()}}

    @property
    def row(self) -> str:
        """A line of the table."""
        small, large = self.medians[0], self.medians[-1]
        return (
            f"| {self.axis} x{self.factors[-1]:.3g} | {self.figure} | {told(small)} | {told(large)} "
            f"| {large / small:.2f} | {self.law[-1] / small:.2f} | {exponent(self.factors, self.medians):.2f} "
            f"| {exponent(self.factors, self.law):.2f} | {WORDS[self.figure]} |"
        )


HEAD = (
    "| what grows | figure | at x1 | at the last | times | law | exponent | its law | the law counts |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)


def told(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def factors(axis: str) -> list[float]:
    of = OF_AXIS[axis]
    return [of(size) / of(FIRST) for size in AXES[axis]]


def exponent(along: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms. NaN where a value is not positive."""
    if min(values) <= 0:
        return math.nan
    return float(np.polyfit(np.log(along), np.log(values), 1)[0])
