"""The sampling half of the bare loop: admit, load, sample, score, hand over.

For: `bare_loop`, as a thread or as a process. Not for: training; failures (one ends the loop).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, Protocol

import numpy as np
import torch

from broker.admission import cap, first_at_risk
from broker.messages import Group, Scores
from consumers.rewards import named_parts, path_of
from consumers.rewards.rule_worker import Part, Question, load, score
from deploy.cores import budget, usable_here
from deploy.run_check import saved_run
from deploy.run_settings import RunSettings
from producers.engines import chosen, factory
from producers.engines.base import EngineCore
from producers.prompt_groups import PromptGroups

LONGEST_WAIT_S = 120.0
TENSORS_IN = "{:06d}"
"""Folder of a version in shared memory."""


class Outbox(Protocol):
    def put(self, item: Any, /) -> None: ...


class Inbox(Protocol):
    """A queue of either kind."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def empty(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Finished:
    """What goes from the sampler to the trainer."""

    groups: Mapping[int, Group] = field(default_factory=dict[int, Group])
    """By number; sampled and scored."""
    spent: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the sampler's thread, since its start: seconds `busy_s`, processor seconds `processor_s`."""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """Admission by number: both halves know which groups are open, without telling each other."""

    groups: int
    staleness: int

    @classmethod
    def of(cls, settings: RunSettings) -> Bound:
        return cls(settings.train.groups, settings.train.staleness)

    def admitted(self, version: int) -> int:
        """How many groups have been admitted once `version` is live."""
        return cap(self.groups, self.staleness) + version * self.groups

    def floor(self, number: int) -> int:
        """The version that was live at the admission of this group."""
        return max(0, (number - self.admitted(0)) // self.groups + 1)

    def batch(self, ready: Collection[int], opened: Collection[int], version: int) -> list[int]:
        """The oldest ready ones, if the step from `version` may leave the other open ones behind; else nothing."""
        oldest = sorted(ready, key=self.floor)[: self.groups]
        if len(oldest) < self.groups:
            return []
        left = [self.floor(number) + self.staleness for number in set(opened) - set(oldest)]
        return oldest if first_at_risk(left, version, self.groups) is None else []


def sample(folder: Path, weights: Path, results: Outbox, news: Inbox) -> None:
    """The thread or process; whatever ends it is told to the trainer."""
    pin("rollout-0")
    torch.set_num_threads(1)
    try:
        Sampling(folder, weights, results, news).run()
    except BaseException as error:
        results.put(Finished(failure=repr(error)))
        raise


def pin(name: str) -> None:
    """This thread to the cores that such a process of a run gets."""
    if cores := budget(usable_here(), ["trainer-0", "rollout-0"])[name].cores:
        os.sched_setaffinity(0, cores)


class Sampling:
    """The sampler's half."""

    def __init__(self, folder: Path, weights: Path, results: Outbox, news: Inbox) -> None:
        settings = saved_run(folder)
        self.weights, self.results, self.news = weights, results, news
        self.at_once = settings.rollout.update == "in_flight"
        self.bound = Bound.of(settings)
        self.core = core_of(folder, settings)
        self.prompts = PromptGroups.of(folder / "model", settings.run, settings.prompts, settings.rollout)
        self.score = scoring(settings)
        self.newest = self.serving = -1
        self.cursor = 0
        self.waiting: deque[tuple[int, Group]] = deque()
        self.running: dict[str, tuple[int, Group]] = {}
        self.busy_s = 0.0

    def run(self) -> None:
        """consumes: versions   produces: scored groups
        waits for: a version, when nothing may be sampled   unblocked by: the trainer's next one, or its end
        """
        while self.hear():
            began = time.monotonic()
            self.follow()
            self.admit()
            if finished := self.core.step():
                groups = dict(self.scored(name, rollouts) for name, rollouts in finished)
                self.busy_s += time.monotonic() - began
                spent = {"busy_s": self.busy_s, "processor_s": time.thread_time()}
                self.results.put(Finished(groups=groups, spent=spent))
            else:
                self.busy_s += time.monotonic() - began
        self.core.close()

    def hear(self) -> bool:
        """The newest version; False at the end."""
        stuck = not self.running and (not self.waiting or self.serving < 0)
        while True:
            try:
                heard = self.news.get(block=stuck)
            except Empty:
                return True
            if heard is None:
                return False
            self.newest, stuck = heard, False

    def follow(self) -> None:
        """Load the newest version: at once, or between groups, as the run's settings say."""
        if self.newest != self.serving and (self.at_once or not self.running):
            self.core.load(self.weights / TENSORS_IN.format(self.newest), self.newest)
            self.serving = self.newest

    def admit(self) -> None:
        """Groups for which a place became free, and to the engine those it has room for."""
        more = self.bound.admitted(self.newest) - self.cursor
        if more > 0:
            self.waiting.extend(enumerate(self.prompts.training(self.cursor, more), self.cursor))
            self.cursor += more
        while self.waiting and self.serving == self.newest and len(self.running) < self.core.capacity:
            number, group = self.waiting.popleft()
            self.running[group.id] = number, group
            self.core.add(group)

    def scored(self, name: str, rollouts: Any) -> tuple[int, Group]:
        number, group = self.running.pop(name)
        return number, self.score(group.with_rollouts(rollouts))


def core_of(folder: Path, settings: RunSettings) -> EngineCore:
    """The stepping core that the run's producer drives."""
    make = factory(chosen(settings.rollout.engine, folder / "model").engine)
    core = make(model_folder=folder / "model", settings=settings.rollout, seed=settings.run.seed)
    if not hasattr(core, "step"):
        raise RuntimeError(f"{type(core).__name__} is no stepping core; the bare loop has nothing else to drive")
    return core


def scoring(settings: RunSettings) -> Callable[[Group], Group]:
    """The run's rules, called here and now."""
    parts = [(name, part.weight, path_of(part.name), part.options) for name, part in named_parts(settings.reward)]
    rules = [load(Part(name=name, path=path, options=options)) for name, _, path, options in parts]
    weights = np.array([weight for _, weight, _, _ in parts], np.float32)

    def scored(group: Group) -> Group:
        assert group.rollouts is not None
        asked = Question(group.prompt.text, group.prompt.answer, group.prompt.meta, group.rollouts.texts)
        found = score(asked, rules, lambda _: None)
        if isinstance(found, str):
            raise RuntimeError(found)
        return group.with_scores(Scores(rewards=weights @ np.array(found, np.float32)))

    return scored
