"""The trainer's choice of a batch, played over whole runs: every group trains inside the bound, and no run is wedged.

Groups are scored in any order, leave without signal, are lost and admitted again; the source ends. Each group is
trained as late and from weights as old as the rules permit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.admission import cap
from broker.contract import OpenGroup
from broker.messages import Delivery, Entry
from consumers.batching import Batch, Done, Wait, choose

SOURCE = 60
"""Prompts until the source ends."""


@dataclass(slots=True)
class Run:
    groups: int
    staleness: int
    version: int = 0
    cursor: int = 0
    arrivals: int = 0
    open: dict[str, OpenGroup] = field(default_factory=dict[str, OpenGroup])
    ready: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    trained: list[str] = field(default_factory=list[str])
    filtered: list[str] = field(default_factory=list[str])

    @property
    def exhausted(self) -> bool:
        return self.cursor == SOURCE

    @property
    def sampled(self) -> list[str]:
        """Open groups that are not scored yet."""
        return [group for group in self.open if group not in self.ready]

    def admit(self) -> None:
        while len(self.open) < cap(self.groups, self.staleness) and not self.exhausted:
            last = self.version + self.staleness
            line = OpenGroup(stream="prompts", entry_id="", kind="train", floor=self.version, last_version=last)
            self.open[f"s/0/{self.cursor}"] = line
            self.cursor += 1

    def score(self, group: str) -> None:
        self.arrivals += 1
        line = self.open[group]
        self.open[group] = replace(line, stream="scored", entry_id=f"{self.arrivals}-0")
        entry = Entry(group=group, kind="train", task="s", size=1, floor=line.floor, last_version=line.last_version)
        self.ready[group] = Delivery(stream="scored", entry_id=f"{self.arrivals}-0", entry=entry)

    def close(self, group: str, books: list[str]) -> None:
        books.append(group)
        del self.open[group]
        self.ready.pop(group, None)

    def lose_everything(self) -> None:
        """A restored run: every open group gets an entry and a floor again."""
        self.ready.clear()
        bounds = {"floor": self.version, "last_version": self.version + self.staleness}
        self.open = {group: replace(line, stream="prompts", **bounds) for group, line in self.open.items()}

    def step(self, batch: Batch) -> None:
        groups = [one.entry.group for one in batch.deliveries]
        assert len(groups) == self.groups or (self.exhausted and len(groups) == len(self.open)), "a short batch"
        assert max(self.version - self.open[group].floor for group in groups) <= self.staleness
        for group in groups:
            self.close(group, self.trained)
        self.version += 1

    def choice(self) -> Batch | Wait | Done:
        ready = list(self.ready.values())
        return choose(ready, self.open, version=self.version, groups=self.groups, exhausted=self.exhausted)


def act(run: Run, draw: random.Random, share: float, losses: float) -> None:
    """One thing that may happen while the trainer waits."""
    if draw.random() < losses:
        run.lose_everything()
        return
    group = draw.choice(run.sampled)
    if draw.random() < share:
        run.close(group, run.filtered)
    else:
        run.score(group)


@pytest.mark.parametrize("staleness", [0, 1, 4])
@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.3, 0.9]), losses=st.sampled_from([0.0, 0.02]))
def test_a_run_ends_with_every_group_trained_inside_the_bound_or_left_for_a_reason(
    staleness: int, groups: int, seed: int, share: float, losses: float
) -> None:
    run, draw = Run(groups, staleness), random.Random(seed)
    while True:
        run.admit()
        match run.choice():
            case Batch() as batch:
                run.step(batch)
            case Done():
                break
            case Wait(reason=reason):
                assert run.sampled, f"wedged at version {run.version}, everything is scored: {reason}"
                act(run, draw, share, losses)
    assert sorted(run.trained + run.filtered) == sorted(f"s/0/{place}" for place in range(SOURCE))
    assert not run.open
