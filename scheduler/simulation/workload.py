"""What a simulated run asks of its slots: how much work its groups are, and how that changes while it trains.

For: numbers alone, each a stated assumption. Not for: the run itself (`world`). Costs are slot-seconds at full speed;
L is a group's mean response length in thousands of tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.observation import Service
from scheduler.simulation.scaling import least_slot_s

Curve = Sequence[tuple[float, float]]
"""(share of the run's versions, value), piecewise linear in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of run, for any number of slots: a version has `groups_per_slot`·N groups."""

    name: str
    about: str
    versions: int = 80
    groups_per_slot: float = 3.0
    """B over N."""
    staleness: int = 3
    """η."""
    length: Curve = ((0.0, 2.0), (1.0, 2.0))
    """Mean L over the run."""
    spread: float = 0.4
    """Standard deviation of log L between groups."""
    longest: float = 32.0
    """Limit on L."""
    surviving: Curve = ((0.0, 1.0), (1.0, 1.0))
    """p over the run: share of scored groups that have a signal."""
    rollout: float = 3.0
    """Per L and group: sixteen siblings of 1 000 tokens at some 5 000 tokens/s."""
    judge: tuple[float, float] = (1.2, 0.0)
    """(constant, per L)"""
    train: tuple[float, float] = (0.3, 0.15)
    """(per L, per L²): a·L + b·L², the second term for attention."""
    scaling: float = 1.0
    """β: n slots that train are n^β times as fast as one; 1 is linear, 0.8 makes twice as many 1.74 times as fast."""
    step_s: float = 0.5
    """Of every training step beside its groups: publishing the weights."""
    shapes: dict[str, Service] = field(
        default_factory=lambda: {
            "rollout": Service(item_s=0.0, move_s=10.0, places=4.0, half_at=0.5),
            "judge": Service(item_s=0.0, move_s=10.0, places=4.0, half_at=0.5),
            "train": Service(item_s=0.0, move_s=15.0),
        }
    )
    """Pool → groups at once, the occupancy at half speed (a generation engine that drains has half its rate), and
    seconds a move takes once the slot has drained."""
    failures_per_slot_hour: float = 0.0
    repair_s: float = 300.0
    switch_s: float = 5.0
    """Of all slots from one role to the next in synchronous co-location."""
    costs: dict[str, Curve] = field(default_factory=dict[str, Curve])
    """Pool → measured slot-seconds per group over the run, instead of the formulas above (a recorded run)."""

    def groups(self, slots: int) -> int:
        """B."""
        return max(1, round(self.groups_per_slot * slots))

    @property
    def drifts(self) -> bool:
        """Whether what a group asks for, or how many survive, changes on the way."""
        curves = [self.length, self.surviving, *self.costs.values()]
        return any(len({value for _, value in curve}) > 1 for curve in curves)

    def at(self, curve: Curve, version: int) -> float:
        shares, values = zip(*curve, strict=True)
        return float(np.interp(version / max(1, self.versions - 1), shares, values))

    def shortened(self, versions: int) -> Workload:
        """The same change over fewer versions."""
        return replace(self, versions=versions)


Group = tuple[float, float, float, bool]
"""(rollout, judge and train seconds at full speed, has a signal)"""
DRAWN = 4096
"""Groups at a time."""


class Cargo:
    """The groups of one run on one fleet, by number. What a group asks for depends on its number alone, as if so many
    had been used up by the versions before: every system compared gets the same groups.
    """

    def __init__(self, workload: Workload, seed: int, slots: int) -> None:
        self.workload, self.seed, self.slots = workload, seed, slots
        self.generator = np.random.default_rng(seed)
        self.drawn: list[Group] = []
        self.work = np.empty((0, 3))
        """(groups drawn, pools): what each asks for."""
        self.means = [self.means_at(version) for version in range(workload.versions)]
        self.ends = np.cumsum([workload.groups(slots) / means[0] for means in self.means]).tolist()
        """By version: groups used up at its end, as expected."""

    def means_at(self, version: int) -> tuple[float, ...]:
        """(p, then L or the measured seconds of the three pools)"""
        load = self.workload
        costs = [load.costs[pool] for pool in ("rollout", "judge", "train")] if load.costs else [load.length]
        return tuple(load.at(curve, version) for curve in (load.surviving, *costs))

    def group(self, number: int) -> Group:
        while number >= len(self.drawn):
            self.draw()
        return self.drawn[number]

    def mean_work(self, numbers: Collection[int]) -> list[float]:
        """What these groups ask for on average, by pool."""
        if not numbers:
            return [0.0, 0.0, 0.0]
        work = self.work[np.fromiter(numbers, dtype=np.intp, count=len(numbers))]
        return (work.cumsum(axis=0)[-1] / len(numbers)).tolist()

    def draw(self) -> None:
        """Some more groups."""
        sigma, first = self.workload.spread, len(self.drawn)
        relative = np.exp(self.generator.normal(-sigma * sigma / 2, sigma, DRAWN)).tolist()
        luck = self.generator.random(DRAWN).tolist()
        self.drawn += [self.made(first + at, *chance) for at, chance in enumerate(zip(relative, luck, strict=True))]
        self.work = np.concatenate([self.work, [group[:3] for group in self.drawn[first:]]])

    def made(self, number: int, factor: float, luck: float) -> Group:
        """`factor` is its length over the mean."""
        load = self.workload
        surviving, *means = self.means[min(bisect_right(self.ends, number), load.versions - 1)]
        survives = luck < surviving
        if load.costs:
            return means[0] * factor, means[1], means[2] * factor, survives
        length = min(load.longest, means[0] * factor)
        judge = load.judge[0] + load.judge[1] * length
        return load.rollout * length, judge, load.train[0] * length + load.train[1] * length * length, survives

    def work_by_version(self) -> NDArray[np.float64]:
        """(versions, pools): slot-seconds that the groups of each version ask for, at full speed."""
        work = np.zeros((self.workload.versions, 3))
        for number in range(int(self.ends[-1])):
            rollout, judge, train, survives = self.group(number)
            work[bisect_right(self.ends, number)] += (rollout, judge, train if survives else 0.0)
        return work

    def fluid_throughput(self) -> float:
        """Trained groups per second if no slot ever idled: N/ΣD, each training slot as fast as its gang lets it be.
        Nothing can be faster."""
        trained = self.workload.versions * self.workload.groups(self.slots)
        rollout, judge, train = self.work_by_version().sum(axis=0).tolist()
        return trained * self.slots / least_slot_s(rollout + judge, train, self.slots, self.workload.scaling)
