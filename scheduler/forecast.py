"""What a division of slots would get done in the next minutes: a fluid model of the closed line of pools.

For: placements and the planner, to compare divisions in one unit, slot-seconds of useful work. Not for: which to take.

Fluid split (n*_s = N·D_s/ΣD_s, D_s = busy seconds per group × visits per trained group): the division under which no
pool waits for another in the long run; ideal time-sharing has the same throughput θ* = N/ΣD_s. In a closed line (at
most K groups open) throughput is lost only while slots find no work, so the useful work within a horizon, from the
backlogs as they are, says what a division is worth, also for fewer slots than pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from scheduler.observation import Observation, Service
from scheduler.pools import Pool

STEPS = 16
"""Of a forecast."""
SHORTEST = 0.05
"""Of a batch that takes longer than the last ones, so much is taken to be left."""
OVERDUE = 1.25
"""So much longer than the last ones a batch may take by chance."""
UNKNOWN = Service(item_s=1.0)
"""Of a pool, while no pool has been measured."""

Split = Mapping[str, int]
"""Pool → slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pool in the line, with what the forecast needs of it."""

    pool: Pool
    service: Service
    visits: float
    queue: int
    """Backlog of its stream that its slots could begin now."""
    measured: bool = True
    """It has finished something, so its service is known."""

    @property
    def demand(self) -> float:
        """D_s: slot-seconds per trained group."""
        return self.service.item_s * self.visits


def stages(observation: Observation, pools: Sequence[Pool]) -> list[Stage]:
    """The line in the order work flows; a pool never measured is taken for the mean of the others."""
    known = [observation.service[pool.name] for pool in pools if pool.name in observation.service]
    usual = Service(item_s=sum(one.item_s for one in known) / len(known)) if known else UNKNOWN
    last = pools[-1].stream
    service = dict(observation.service)
    if pools[-1].name in service:
        service[pools[-1].name] = overdue(service[pools[-1].name], observation.groups)
    return [
        Stage(
            pool=pool,
            service=service.get(pool.name, usual),
            visits=observation.visits(pool.stream, last),
            queue=observation.backlog.get(pool.stream, 0) if pool.stream != last else batched(observation, pools),
            measured=pool.name in observation.service,
        )
        for pool in pools
    ]


def overdue(service: Service, groups: int) -> Service:
    """The last pool's, no cheaper than the batch in training has shown already. A step tells what it cost when it ends,
    and where costs leap it ends many times later: until then all that is known is that it is not over.
    """
    shown_s = service.begun_s / groups
    return replace(service, item_s=shown_s) if shown_s > OVERDUE * service.item_s else service


def batched(observation: Observation, pools: Sequence[Pool]) -> int:
    """The backlog of the last pool; less than a batch when that pool stands still with one before it. It waits for an
    older group then (the rank rule allows no step without that one), which never comes out of a pool without slots.
    """
    *before, last = pools
    queue = observation.backlog.get(last.stream, 0)
    if last.name not in observation.still:
        return queue
    have = observation.serving()
    stuck = any(observation.backlog.get(pool.stream, 0) and not have.get(pool.name) for pool in before)
    return min(queue, observation.groups - 1) if stuck else queue


def fluid_split(line: Sequence[Stage], slots: int) -> dict[str, float]:
    """n*_s = N·D_s/ΣD, in fractions of slots."""
    total = sum(stage.demand for stage in line) or 1.0
    return {stage.pool.name: slots * stage.demand / total for stage in line}


def whole_split(weights: Mapping[str, float], pools: Sequence[Pool], slots: int) -> dict[str, int]:
    """The best whole numbers in proportion to `weights`: minima first, then each slot to the pool that has least for
    its weight (greedy is optimal for the max-min objective when rates grow with slots)."""
    split: dict[str, int] = {}
    for pool in pools:
        split[pool.name] = min(pool.min, slots - sum(split.values()))
    ranked = [
        (given / weight, -weight, name) for name, given in split.items() if (weight := weights.get(name, 0.0)) > 0
    ]
    heapify(ranked)
    most = {pool.name: pool.most(slots) for pool in pools}
    free = slots - sum(split.values())
    while free and ranked:
        _, heaviest, name = heappop(ranked)
        if split[name] < most[name]:
            split[name] += 1
            free -= 1
            heappush(ranked, (split[name] / weights[name], heaviest, name))
    return split


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One division's next minutes."""

    step_s: float
    work_by: Sequence[float]
    """After each step, slot-seconds of useful work so far, at full speed, of all pools."""
    busy: Mapping[str, float]
    """Pool → share of its slots' time that is useful work; for a pool without slots, 0."""
    soon_idle: Mapping[str, float]
    """Pool → mean number of its slots without work in the first part, as long as `soon_s`."""


def turnover_s(line: Sequence[Stage], slots: int, cap: int) -> float:
    """K·ΣD/N: in so long all open groups are replaced, at the fluid split's throughput."""
    return cap * sum(stage.demand for stage in line) / max(1, slots)


class Line:
    """The backlogs as they are followed forward: one `step` after another.

    The last pool takes whole batches of B groups, and only the end of one lets new groups in; a line that holds less
    than a batch altogether is at its source's end, where a batch may be short.
    """

    def __init__(self, line: Sequence[Stage], split: Split, groups: int, surviving: float) -> None:
        self.line = line
        self.slots = [split.get(stage.pool.name, 0) for stage in line]
        self.queue = [float(stage.queue) for stage in line]
        self.done = [0.0] * len(line)
        """Slot-seconds of useful work by pool."""
        self.groups = max(1.0, min(float(groups), sum(self.queue)))
        self.surviving = surviving
        self.trains = self.queue[-1] >= self.groups
        begun = line[-1].service.begun_s / line[-1].service.item_s
        self.left = max(self.groups - begun, SHORTEST * self.groups)
        """Of the batch in training."""

    def step(self, seconds: float) -> None:
        """Downstream first: what a pool finishes now the next one finds in the next step."""
        self.train(seconds)
        last = len(self.line) - 1
        for place in range(last - 1, -1, -1):
            stage, have = self.line[place], self.slots[place]
            if not have:
                continue
            service = stage.service
            speed = service.speed(self.queue[place] / have) if service.half_at else 1.0
            out = min(self.queue[place], have * seconds * speed / service.item_s)
            kept = out * self.surviving if place == last - 1 else out
            self.done[place] += out * service.item_s
            self.queue[place] -= out
            self.queue[place + 1] += kept
            self.queue[0] += out - kept

    def train(self, seconds: float) -> None:
        item_s = self.line[-1].service.item_s
        can = self.slots[-1] * seconds / item_s
        while can > 0:
            if not self.trains:
                if self.queue[-1] < self.groups:
                    return
                self.trains, self.left = True, self.groups
            part = min(can, self.left)
            can, self.left = can - part, self.left - part
            self.done[-1] += part * item_s
            if self.left <= 0:
                self.trains = False
                self.queue[-1] -= self.groups
                self.queue[0] += self.groups


def forecast(
    line: Sequence[Stage], split: Split, groups: int, horizon_s: float, soon_s: float, *, surviving: float = 1.0
) -> Forecast:
    """Follow the backlogs for `horizon_s` under this split. `groups` is B."""
    followed, step_s = Line(line, split, groups, surviving), horizon_s / STEPS
    soon = min(STEPS, max(1, round(soon_s / step_s)))
    work_by: list[float] = []
    soon_done: list[float] = []
    for step in range(1, STEPS + 1):
        followed.step(step_s)
        work_by.append(sum(followed.done))
        if step == soon:
            soon_done = list(followed.done)
    each = list(zip(line, followed.slots, followed.done, soon_done, strict=True))
    return Forecast(
        step_s=step_s,
        work_by=work_by,
        busy={stage.pool.name: done / (have * horizon_s) if have else 0.0 for stage, have, done, _ in each},
        soon_idle={stage.pool.name: max(0.0, have - done / (soon * step_s)) for stage, have, _, done in each},
    )
