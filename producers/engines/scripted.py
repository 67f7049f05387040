"""Engine `scripted`: answers by rule, without a model; the partner of the scripted learner.

For: tests and paced fleets, where streams, versions and staleness are looked at and no probability is. Not for:
measuring anything about a model.

It reads the published file of each version like any other engine, so a publish that did not arrive is noticed: its
log-probabilities depend on the tensor `weights` (float32, one number) that the scripted learner trains. Action a in
place i of its rollout has the log-probability −(1 + ((7·a + 13·i + 31·round(weights)) mod 97) / 97), at every
temperature.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from safetensors import SafetensorError, safe_open

from broker.errors import Misconfigured, Poison, Transient
from broker.messages import Actions, Group, Rollouts
from broker.settings import Section, load_section
from producers.engines.base import Continuation
from producers.engines.siblings import Finish, Sibling, Siblings
from producers.engines.texts import Reader
from producers.settings import RolloutSection

PADDING = 0
"""The action that fills a rollout up to its length: the padding token, which reads as nothing."""

NAP_S = 0.05
"""Longest sleep of one step: the engine is spoken to between two steps."""


def in_order(length: tuple[int, int]) -> tuple[int, int]:
    """Raises ValueError for a least length that is more than the most, or less than one action."""
    if not 1 <= length[0] <= length[1]:
        raise ValueError("write [least, most] actions, 1 or more")
    return length


Length = Annotated[tuple[int, int], AfterValidator(in_order)]
"""Least and most actions of a rollout."""


class LaterLength(Section):
    """What changes while the run goes on."""

    version: int = Field(ge=0)
    """From the groups on that are begun under this weight version or a later one."""
    length: Length
    """Least and most actions of a rollout, from then on."""


class ScriptedOptions(Section):
    """`[rollout] options` of this engine."""

    accuracy: float = Field(default=0.5, ge=0, le=1)
    """Share of rollouts that give the prompt's answer, at version 0."""
    gain: float = Field(default=0.0, ge=0)
    """How much the share rises with each version."""
    length: Length = (1, 1)
    """A rollout is filled up to a number of actions between these, drawn by its seed."""
    later: LaterLength | None = None
    """Another length mid-way; none keeps it."""
    pace_s: float = Field(default=0.0, ge=0)
    """Seconds one group takes, slept instead of computed; groups are served one after the other."""
    token_pace_s: float = Field(default=0.0, ge=0)
    """Seconds more for each of its tokens, all siblings together."""
    beats: int = Field(default=2, ge=1)
    """Parts in which one group is sampled: new weights between two of them show as two spans."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All a sibling will say, and how it ends."""

    actions: NDArray[np.int32]
    finish: Finish


class ScriptedCore:
    """See `base.EngineCore`."""

    def __init__(self, reader: Reader, longest: int | None, options: ScriptedOptions, *, capacity: int) -> None:
        self.reader = reader
        self.longest = longest
        self.options = options
        self.capacity = capacity
        self.weights = 0.0
        self.version = -1
        self.waiting: deque[Group] = deque()
        self.answers: list[Answer] = []
        """Of the group served now."""
        self.beats: list[tuple[float, int]] = []
        """Weights and version at each beat of the group served now."""
        self.in_beat = False
        self.due = 0.0
        """When the beat ends."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting

    def add(self, group: Group) -> None:
        context, more = len(group.prompt.actions), group.prompt.max_actions
        if more < 1 or (self.longest is not None and context + more > self.longest):
            raise Poison(
                f"{context} prompt tokens and {more} more are {context + more}, and the model takes one more or "
                f"some, up to "
                f"{self.longest} in all; the group is buried; shorten the prompt or change [rollout] max_tokens"
            )
        self.waiting.append(group)

    def step(self) -> list[tuple[str, Rollouts]]:
        """One beat of the oldest group, or a nap within it: its next actions come from the weights served when the beat
        began.
        """
        group = self.waiting[0]
        if not self.answers:
            self.answers, self.due = self.plan(group), time.monotonic()
        if not self.in_beat:
            self.begin_beat()
        left = self.due - time.monotonic()
        if left > 0:
            time.sleep(min(left, NAP_S))
        self.in_beat = left > NAP_S
        if self.in_beat or len(self.beats) < self.options.beats:
            return []
        siblings = Siblings(group)
        for index, answer in enumerate(self.answers):
            siblings.finish(index, spoken(answer, self.beats))
        self.waiting.popleft()
        self.answers, self.beats = [], []
        return [(group.id, siblings.rollouts(self.reader))]

    def begin_beat(self) -> None:
        """Its time counts from the planned end of the one before, so that naps do not add up to more."""
        self.in_beat = True
        self.beats.append((self.weights, self.version))
        tokens = sum(len(answer.actions) for answer in self.answers)
        self.due += (self.options.pace_s + self.options.token_pace_s * tokens) / self.options.beats

    def plan(self, group: Group) -> list[Answer]:
        """What each sibling will say, right or almost right, by the group's seed."""
        prompt, draws = group.prompt, np.random.default_rng(group.prompt.seed)
        right = draws.random(prompt.size) < self.options.accuracy + self.options.gain * max(0, self.version)
        lengths = draws.integers(*self.length, size=prompt.size, endpoint=True)
        answer = self.reader.encode(prompt.answer) or [PADDING + 1]
        almost = [*answer[:-1], (answer[-1] + 1) % self.reader.vocabulary]
        return [
            filled(answer if each else almost, length, prompt.max_actions, prompt.stop)
            for each, length in zip(right, lengths.tolist(), strict=True)
        ]

    @property
    def length(self) -> tuple[int, int]:
        """Least and most actions of a rollout that is begun now."""
        later = self.options.later
        return later.length if later and self.version >= later.version else self.options.length

    def load(self, folder: Path, version: int) -> None:
        """Raises Transient for a file that is not there or not whole; one without `weights` (a model's own) counts as
        0.
        """
        path = folder / "model.safetensors"
        try:
            with safe_open(path, framework="np") as file:
                self.weights = float(file.get_tensor("weights")[0]) if "weights" in file.keys() else 0.0  # noqa: SIM118  a safetensors file is no dict
        except (FileNotFoundError, SafetensorError) as error:
            raise Transient(
                f"{path}: {error}; the weights served stay as they are and the load is tried again; if it lasts, the "
                "trainer's publishing or the shared disk is at fault"
            ) from error
        self.version = version

    def logprobs(self, sequences: Sequence[Continuation]) -> list[NDArray[np.float32]]:
        return [scripted_logprobs(each.continuation, self.weights) for each in sequences]

    def close(self) -> None:
        self.waiting.clear()


def filled(said: list[int], length: int, limit: int, stop: tuple[int, ...]) -> Answer:
    """Padded to `length` with a stop token as its last action, or to the limit when there is none; cut at either."""
    padding = (length if stop else limit) - len(said) - len(stop[:1])
    actions = [*said, *[PADDING] * padding, *stop[:1]][:limit]
    ends = [place for place, action in enumerate(actions) if action in stop]
    finish: Finish = "stop" if ends else "length"
    return Answer(np.array(actions[: ends[0] + 1] if ends else actions, np.int32), finish)


def spoken(answer: Answer, beats: Sequence[tuple[float, int]]) -> Sibling:
    """The answer cut into as many parts as there were beats, each under the weights of its beat."""
    count, actions = len(answer.actions), answer.actions
    beat = np.arange(count) * len(beats) // max(1, count)
    logprobs = np.stack([scripted_logprobs(actions, weights) for weights, _ in beats])
    versions = np.array([version for _, version in beats], np.int32)
    return Sibling(actions, logprobs[beat, np.arange(count)], versions[beat], answer.finish)


def scripted_logprobs(actions: Actions, weights: float) -> NDArray[np.float32]:
    """(n,) by the formula of this module."""
    place = np.arange(len(actions))
    return (-(1 + (actions.astype(np.int64) * 7 + place * 13 + 31 * round(weights)) % 97 / 97)).astype(np.float32)


def make(model_folder: Path, settings: RolloutSection, *, seed: int) -> ScriptedCore:
    """The engine on a model folder, of which it uses the tokenizer and the length of the context; a group brings its
    seed.
    """
    options = load_section(ScriptedOptions, "rollout.options", settings.options)
    config = model_folder / "config.json"
    if not config.is_file():
        raise Misconfigured(
            f"{model_folder} has no config.json, so it is no model folder; nothing was started; see [model] init"
        )
    most = max(length[1] for length in (options.length, options.later.length if options.later else (1, 1)))
    if most > settings.max_tokens:
        raise Misconfigured(
            f"[rollout] options: up to {most} actions a rollout, but max_tokens = {settings.max_tokens} cuts them; "
            f"nothing was started; set max_tokens to {most} or more"
        )
    longest = json.loads(config.read_text()).get("max_position_embeddings")
    return ScriptedCore(
        Reader(model_folder), longest, options, capacity=max(1, settings.max_rows // settings.group_size)
    )
