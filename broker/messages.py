"""What flows: a prompt group, growing by one part at each stage, and the small readable entry that names it.

For: values and their meaning. Not for: bytes (see `codec`), transport (see `contract`).
Actions are token ids (int32, one number each) or vectors (float32, D numbers each): nothing here knows which.

Axes: G siblings of a group · N actions of all siblings, one sibling after the other · D numbers in one action.

>>> group = Group(id="addition/0/7", kind="train", prompt=prompt)
>>> group.with_rollouts(rollouts).with_scores(scores).scores.rewards   # one float32 per sibling
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["train", "eval"]
"""`train` groups are trained once; `eval` groups are measured at exactly one version and never trained."""

Actions = NDArray[np.int32] | NDArray[np.float32]
"""(N,) token ids or (N, D) vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the feeder admits: a context, how many siblings to sample from it, and how."""

    text: str
    """As a person reads it."""
    actions: Actions
    """The encoded context the engine continues."""
    size: int
    """G, siblings to sample."""
    seed: int
    """Derived from the run's seed and the group's id: the same group samples the same rollouts from the same
    weights.
    """
    temperature: float = 1.0
    """0 is greedy."""
    max_actions: int = 128
    """Limit on sampled actions per sibling."""
    stop: tuple[int, ...] = ()
    """Token ids that end a rollout; the ending token is kept as its last action."""
    task: str = ""
    """Name of the prompt source."""
    answer: str = ""
    """What a rule compares with; empty when there is none."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Whatever the source wants its reward to see; plain nested values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What a rollout producer adds: G sampled siblings with the probabilities they were sampled with."""

    texts: tuple[str, ...]
    """(G,) as a person reads them; never re-encoded."""
    actions: Actions
    """(N,) or (N, D)."""
    offsets: NDArray[np.int32]
    """(G+1,) sibling g owns actions[offsets[g]:offsets[g+1]]."""
    logprobs: NDArray[np.float32]
    """(N,) behaviour log-probabilities, of the distribution actually sampled from (after temperature)."""
    mask: NDArray[np.uint8]
    """(N,) 1 where the action was the policy's own choice, 0 where it was given (tool output)."""
    spans: NDArray[np.int32]
    """(S, 4) rows `sibling, start, end, version`: actions [start, end) of the sibling came from that version."""
    finishes: tuple[str, ...]
    """(G,) `stop` | `length`."""

    @property
    def oldest_version(self) -> int:
        return int(self.spans[:, 3].min())

    @property
    def newest_version(self) -> int:
        return int(self.spans[:, 3].max())

    def sibling(self, index: int) -> slice:
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What the reward consumer adds."""

    rewards: NDArray[np.float32]
    """(G,) weighted sum of the parts."""
    parts: Mapping[str, NDArray[np.float32]] = field(default_factory=dict[str, "NDArray[np.float32]"])
    """(G,) per part, before weighting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One prompt and its siblings: the unit that flows, from admission to training."""

    id: str
    """`source/pass/index`; for evaluation `eval/version/index`."""
    kind: Kind
    prompt: Prompt
    rollouts: Rollouts | None = None
    scores: Scores | None = None

    def with_rollouts(self, rollouts: Rollouts) -> Group:
        return replace(self, rollouts=rollouts)

    def with_scores(self, scores: Scores) -> Group:
        return replace(self, scores=scores)

    @property
    def tokens(self) -> int:
        """Sampled actions of all siblings."""
        return 0 if self.rollouts is None else len(self.rollouts.logprobs)

    @property
    def reward(self) -> float | None:
        """Mean over siblings, once scored."""
        return None if self.scores is None else float(self.scores.rewards.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a stream entry carries: text a person can read in redis-cli, enough to plan on, under 1 KB."""

    group: str
    kind: Kind
    task: str
    size: int
    """G."""
    floor: int
    """Version that was live at admission; producers start the group only with weights at least this new."""
    last_version: int
    """floor + η: the last version the group may be trained on."""
    attempt: int = 0
    """Failed tries so far, by our own count."""
    alone: bool = False
    """It was in hand when a process died: it is worked on alone until that is settled."""
    oldest_version: int = -1
    newest_version: int = -1
    """Versions that touched its rollouts; -1 before there are any."""
    reward: float | None = None
    tokens: int = 0
    bytes: int = 0
    """Size of the body so far."""
    trace: str = field(default="", compare=False)
    """The way here, one step after the other (`entries.traced`); it names processes, so equal groups differ in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One entry in our hands: where it is, and what it says."""

    stream: str
    entry_id: str
    entry: Entry

    @property
    def added_at(self) -> float | None:
        """When the entry was appended, by the server's clock, seconds since 1970; None where its id is no time."""
        return added_at(self.entry_id)


def added_at(entry_id: str) -> float | None:
    """Seconds since 1970 of an entry id that a server gave; None for any other."""
    milliseconds = entry_id.partition("-")[0]
    return int(milliseconds) / 1000 if milliseconds.isdecimal() and len(milliseconds) >= 13 else None
