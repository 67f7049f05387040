"""Settings of the consumers: `[reward]`, `[algorithm]`, `[train]`. Imports no heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from broker.settings import Section
from consumers.rewards.names import JUDGES, REWARDS

Place = Literal["cpu", "slot"]


class RewardPart(Section):
    """One entry of `[reward] parts`."""

    name: str
    """A shipped rule or judge, or a dotted path `module:attribute`."""
    weight: float = 1.0
    """The reward is the sum of weight × part."""
    on: Place = "cpu"
    """`cpu`: a rule, run in a worker process. `slot`: a judge, which needs a slot; listed names have their place."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the rule or judge."""

    @model_validator(mode="before")
    @classmethod
    def know_where(cls, given: Any) -> Any:
        """A listed name has its place. Raises ValueError for another one."""
        name, on = (given.get("name"), given.get("on")) if isinstance(given, Mapping) else (None, None)
        listed: Place | None = "slot" if name in JUDGES else "cpu" if name in REWARDS else None
        if listed is None:
            return given
        if on not in (None, listed):
            raise ValueError(f'"{name}" is scored on = "{listed}", leave on out')
        return {**given, "on": listed}


class RewardSection(Section):
    """`[reward]`"""

    parts: list[RewardPart] = Field(default_factory=lambda: [RewardPart(name="exact_match")], min_length=1)
    """What is summed up: rules and judges."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Hard deadline of the rules for one group; their process is killed, the try counts as an attempt."""
    processes: int = Field(default=1, ge=1)
    """Worker processes of the rule pool."""
    capacity: int = Field(default=256, ge=1)
    """Groups in hand at once; where a judge scores, as many as the judge has places for, if that is less."""


def needs_judge(settings: RewardSection) -> bool:
    """Whether any part needs a slot. Then all groups of the run are scored on `judge` slots, else on CPU workers."""
    return any(part.on == "slot" for part in settings.parts)


class Correction(Section):
    """`[algorithm] correction`: what to do about actions sampled from an older policy (w = proximal/behaviour)."""

    token: Literal["clip", "tis", "mis", "icepop", "none"] = "clip"
    """`clip` compares with the behaviour policy itself, so that the algorithm's clip bounds how far a stale action
    pushes; the others weigh an action by w, and the clip bounds only what several optimizer steps per batch add."""
    token_cap: float = Field(default=2.0, gt=1)
    """C: `clip` and `tis` let no ratio count more; `mis` drops and `icepop` silences actions outside [1/C, C]."""
    sequence: Literal["none", "geometric"] = "geometric"
    """`geometric` also looks at a rollout as a whole."""
    sequence_cap: float = Field(default=2.0, gt=1)
    """A rollout whose exp(mean log w) lies outside [1/C, C] is masked."""


class AlgorithmSection(Section):
    """`[algorithm]`"""

    name: str = "grpo"
    """`cispo`, `dapo`, `dr_grpo`, `grpo`, `gspo`, `reinforce`, `rloo`, or a dotted path."""
    dynamic_sampling: bool = False
    """True: groups without signal are retired before training and B counts survivors."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """ε: how far the ratio of new to proximal probability may leave 1."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the frozen reference (version 0); 0 loads no reference."""
    correction: Correction = Correction()
    """For actions that were sampled from an older policy."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the algorithm."""


class Lora(Section):
    """`[train] lora`"""

    r: int = Field(default=16, ge=1)
    """Rank of the added matrices."""
    alpha: int = Field(default=32, ge=1)
    """They are scaled by alpha / r."""
    targets: list[str] = Field(default_factory=lambda: ["q_proj", "v_proj", "o_proj"])
    """Names of the modules that get them."""


class TrainSection(Section):
    """`[train]`"""

    learner: str = "deepspeed"
    """`deepspeed`, `scripted`, or a dotted path."""
    groups: int = Field(default=64, ge=1)
    """B, groups per version."""
    staleness: int = Field(default=1, ge=0)
    """η, the bound in versions."""
    late: Literal["wait", "recycle", "retire", "keep"] = "wait"
    """What becomes of a group that would break the bound."""
    lr: float = Field(default=5e-4, gt=0)
    """Learning rate of AdamW."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW: decay of the mean and of the squares."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of AdamW."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    warmup_steps: int = Field(default=0, ge=0)
    """Versions over which the learning rate rises from 0."""
    optimizer_steps: int = Field(default=1, ge=1)
    """Optimizer steps per batch (mini-batches); more than one costs a forward pass for proximal log-probs."""
    micro_tokens: int = Field(default=16384, ge=1)
    """Most tokens (prompt and rollout, padding included) in one forward pass, of them at most 256 of padding."""
    zero_stage: int = Field(default=0, ge=0, le=3)
    """What ZeRO partitions over the ranks: 1 optimizer state, 2 gradients too, 3 parameters too."""
    ranks: int = Field(default=1, ge=1)
    """Processes the learner is spread over; the trainer is rank 0 and starts the others. On GPUs, one GPU each."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Versions between two checkpoints; a resume replays what came after the last."""
    lora: Lora | None = None
    """Train low-rank additions; none trains all weights."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the learner."""


class DeepSpeedOptions(Section):
    """`[train] options` of the learner `deepspeed`."""

    policy: str = "causal_lm"
    """A name of `policies`, or a dotted path."""
    without_signal: Literal["skip", "train"] = "skip"
    """Rollouts whose advantage is 0 have no gradient, so they take part in no pass unless a reference pulls at them;
    `train` lets them take part all the same, for comparing costs."""
