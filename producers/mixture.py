"""Which source a cursor falls on: mixtures that hold their shares, and exact passes over finite sources.

For: the arithmetic, pure. Not for: reading data, or ids. A cursor's place depends on nothing but the cursor, so a
feeder that starts again needs to know one number.

Shares are held as closely as can be: at every cursor each source of k ≥ 2 has had its share within 1 − 1/(2k − 2), the
best possible bound (R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980).

>>> schedule = Schedule(weights=[2, 1], sizes=[None, 50])
>>> [schedule.at(cursor).source for cursor in range(3)]
[0, 1, 0]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from broker.errors import Misconfigured

LONGEST_ROUND = 100_000
"""Turns until a mixture repeats itself; weights that need more are refused rather than rounded."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cursor falls."""

    source: int
    pass_number: int
    index: int
    """Within the pass."""


class Round:
    """One period of turns among these sources, in which each has exactly as many as its weight."""

    def __init__(self, weights: Sequence[int]) -> None:
        self.weights = tuple(weights)
        self.turns = turns(weights)
        self.places: list[list[int]] = [[] for _ in weights]
        """Per source, the turns that are its own."""
        self.before: list[int] = []
        """Per turn, how many its source had earlier in the round."""
        for turn, source in enumerate(self.turns):
            self.before.append(len(self.places[source]))
            self.places[source].append(turn)

    def at(self, turn: int) -> tuple[int, int]:
        """(source, how many turns it had before), any number of rounds on."""
        rounds, within = divmod(turn, len(self.turns))
        source = self.turns[within]
        return source, rounds * self.weights[source] + self.before[within]

    def had(self, turns: int) -> list[int]:
        """How many of the first so many turns each source had."""
        rounds, within = divmod(turns, len(self.turns))
        return [
            rounds * weight + bisect_right(places, within - 1)
            for weight, places in zip(self.weights, self.places, strict=True)
        ]

    def turns_until(self, source: int, count: int) -> int:
        """Turns after which `source` has had `count` ≥ 1."""
        rounds, within = divmod(count - 1, self.weights[source])
        return rounds * len(self.turns) + self.places[source][within] + 1


@dataclass(frozen=True, slots=True)
class Stretch:
    """From one cursor on, the same sources take turns; it ends when one of them has had all its passes."""

    start: int
    given: tuple[int, ...]
    """Prompts of every source before `start`."""
    members: tuple[int, ...]
    round: Round


class Schedule:
    """Sources by weight; with `passes`, each finite source is read exactly so often, then the others share its turns.

    `sizes` are prompts in one pass, None for an endless source. With `passes` the schedule ends when every finite
    source has been read; raises Misconfigured when there is none, and for weights that cannot be held.
    """

    def __init__(self, weights: Sequence[float], sizes: Sequence[int | None], passes: int | None = None) -> None:
        self.sizes = tuple(sizes)
        self.passes = passes
        if passes is not None and all(size is None for size in sizes):
            raise Misconfigured(
                f"[prompts] passes = {passes}, but every source is endless; nothing was started; remove passes and "
                "end the run by run.steps or run.stop_when"
            )
        whole = whole_weights(weights)
        self.limits = [None if size is None or passes is None else size * passes for size in sizes]
        self.stretches = [Stretch(0, (0,) * len(whole), tuple(range(len(whole))), Round(whole))]
        self.total: int | None = None
        """Prompts in all; None when they never end."""
        while passes is not None and self.total is None:
            self.finish_stretch(whole)

    def finish_stretch(self, weights: Sequence[int]) -> None:
        """Find the cursor where the last stretch ends, and who goes on from there."""
        last = self.stretches[-1]
        left = {m: limit - last.given[m] for m in last.members if (limit := self.limits[m]) is not None}
        length = min(last.round.turns_until(last.members.index(source), count) for source, count in left.items())
        given = list(last.given)
        for member, had in zip(last.members, last.round.had(length), strict=True):
            given[member] += had
        going_on = tuple(m for m in last.members if given[m] != self.limits[m])
        start = last.start + length
        if all(self.limits[m] is None for m in going_on):
            self.total = start
            return
        self.stretches.append(Stretch(start, tuple(given), going_on, Round(reduced([weights[m] for m in going_on]))))

    def at(self, cursor: int) -> Place:
        """Raises IndexError at and after the end."""
        if self.total is not None and cursor >= self.total:
            raise IndexError(f"cursor {cursor} is behind the last of {self.total} prompts")
        stretch = self.stretch_of(cursor)
        member, had = stretch.round.at(cursor - stretch.start)
        source = stretch.members[member]
        size, taken = self.sizes[source], stretch.given[source] + had
        return Place(source, 0, taken) if size is None else Place(source, *divmod(taken, size))

    def given(self, cursor: int) -> list[int]:
        """How many prompts of each source lie before `cursor`."""
        stretch = self.stretch_of(cursor)
        given = list(stretch.given)
        for member, had in zip(stretch.members, stretch.round.had(cursor - stretch.start), strict=True):
            given[member] += had
        return given

    def stretch_of(self, cursor: int) -> Stretch:
        return self.stretches[bisect_right(self.stretches, cursor, key=lambda stretch: stretch.start) - 1]


def whole_weights(weights: Sequence[float]) -> list[int]:
    """The smallest whole numbers in the same proportion, exactly. Raises Misconfigured."""
    if not weights or not all(0 < weight < float("inf") for weight in weights):
        raise Misconfigured(
            f"[prompts] weights = {list(weights)}: each must be above 0; nothing was started; remove a source that is "
            "not wanted"
        )
    fractions = [Fraction(str(weight)) for weight in weights]  # by its decimals: 0.1 is meant as a tenth
    scale = lcm(*(fraction.denominator for fraction in fractions))
    whole = reduced([int(fraction * scale) for fraction in fractions])
    if sum(whole) > LONGEST_ROUND:
        raise Misconfigured(
            f"[prompts] weights = {list(weights)} repeat only after {sum(whole)} prompts (at most {LONGEST_ROUND}); "
            "nothing was started; give weights with fewer digits"
        )
    return whole


def reduced(weights: Sequence[int]) -> list[int]:
    divisor = gcd(*weights)
    return [weight // divisor for weight in weights]


def turns(weights: Sequence[int]) -> list[int]:
    """One round of Tijdeman's assignment: of the sources that may have a turn, the one that must have it first.

    With k sources, share s and x turns had, a source may have turn n (from 1) when n·s − x ≥ 1/(2k−2), and must have it
    by the first n with n·s − x ≥ 1 − 1/(2k−2). Everything is multiplied out into whole numbers.
    """
    if len(weights) == 1:
        return [0] * weights[0]
    total, d = sum(weights), 2 * len(weights) - 2
    had = [0] * len(weights)
    order: list[int] = []
    for n in range(1, total + 1):
        may = [i for i, w in enumerate(weights) if d * (n * w - total * had[i]) >= total]
        chosen = min(may, key=lambda i: (-(-total * (d * (had[i] + 1) - 1) // (d * weights[i])), i))
        had[chosen] += 1
        order.append(chosen)
    return order
