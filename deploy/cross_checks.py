"""What two settings together make impossible, or unwise; each finding names both with their numbers.

For: sections that are right one by one. Not for: one section alone (its own types), the machine's state (`doctor`), or
names in registries (whoever builds the thing says what it knows). Everything here is a pure function of the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.admission import cap
from broker.errors import Misconfigured
from broker.stop_rule import parse
from deploy.run_settings import RunSettings

BYTES_PER_TOKEN = 16
"""In a group's body: token 4, log-prob 4, mask 1, its text about 5, rounded up."""

URL_KINDS = ("redis://", "rediss://", "unix://")

GROUP_RELATIVE = ("grpo", "rloo", "dr_grpo", "gspo")
"""Algorithms that compare a rollout with its siblings: one sibling alone never gives a signal."""


def problems_between(settings: RunSettings) -> list[str]:
    """Everything that could never train; empty when the settings can."""
    return [f"{problem}; nothing was started; {mend}" for problem, mend in impossible(settings)]


def impossible(s: RunSettings) -> Iterator[tuple[str, str]]:
    """(what is wrong, the mend)"""
    if s.rollout.top_p < 1 or s.rollout.top_k > 0:
        yield (
            f"[rollout] top_p = {s.rollout.top_p:g}, top_k = {s.rollout.top_k}: the trainer cannot correct for a truncated distribution",
            "set top_p = 1 and top_k = 0",
        )
    if s.algorithm.name in GROUP_RELATIVE and s.rollout.group_size == 1:
        yield (
            f"[algorithm] {s.algorithm.name} compares siblings, but [rollout] group_size = 1",
            "set group_size to 2 or more",
        )
    if s.rollout.group_size > s.rollout.max_rows:
        yield (
            f"[rollout] group_size = {s.rollout.group_size} siblings do not fit max_rows = {s.rollout.max_rows}",
            f"set max_rows to {s.rollout.group_size} or more",
        )
    if s.train.ranks > s.train.groups:
        yield (
            f"[train] ranks = {s.train.ranks} with groups = {s.train.groups}: some ranks would never get a group",
            "raise groups or lower ranks",
        )
    if s.train.optimizer_steps > s.train.groups:
        yield (
            f"[train] optimizer_steps = {s.train.optimizer_steps} with groups = {s.train.groups}: a step would have no group",
            "raise groups or lower optimizer_steps",
        )
    if not s.broker.url.startswith(URL_KINDS) and s.broker.url != "embedded":
        yield (
            f'[broker] url = "{s.broker.url}" is no address',
            f'write "embedded", or one that begins with {", ".join(URL_KINDS)}',
        )
    yield from goal_that_cannot_be_met(s)
    yield from memory_that_cannot_hold(s)


def goal_that_cannot_be_met(s: RunSettings) -> Iterator[tuple[str, str]]:
    try:
        rule = parse(s.run.stop_when)
    except Misconfigured as error:
        problem, _, mend = str(error).split("; ", 2)
        yield problem, mend
        return
    if rule is not None and s.prompts.eval.size == 0:
        yield (
            f'[run] stop_when = "{s.run.stop_when}" needs evaluations, but [prompts] eval.size = 0 switches them off',
            "set prompts.eval.size, or leave stop_when empty",
        )


def memory_that_cannot_hold(s: RunSettings) -> Iterator[tuple[str, str]]:
    """All open groups at their longest must fit half of an embedded server's memory."""
    if s.broker.url != "embedded":
        return
    open_groups = cap(s.train.groups, s.train.staleness)
    largest = s.rollout.group_size * s.rollout.max_tokens * BYTES_PER_TOKEN
    needed_mb = open_groups * largest / 2**20
    if needed_mb > s.broker.maxmemory_mb / 2:
        yield (
            (
                f"[broker] maxmemory_mb = {s.broker.maxmemory_mb}: {open_groups} open groups (groups × (staleness + 1) = "
                f"{s.train.groups} × {s.train.staleness + 1}) of {s.rollout.group_size} × {s.rollout.max_tokens} tokens may take "
                f"{needed_mb:.0f} MB, and must fit half of it"
            ),
            f"set maxmemory_mb to {2 * int(needed_mb + 1)} or more",
        )


def warnings_between(s: RunSettings, cores: int) -> list[str]:
    """What runs, but probably not as meant on a machine with so many usable cores."""
    return list(unwise(s, cores))


def unwise(s: RunSettings, cores: int) -> Iterator[str]:
    if s.train.ranks > cores:
        yield f"[train] ranks = {s.train.ranks} on {cores} usable cores: ranks will wait for each other; lower ranks"
    if s.run.stop_when and s.prompts.eval.every > s.run.steps:
        yield (
            f"[prompts] eval.every = {s.prompts.eval.every} with [run] steps = {s.run.steps}: only the first and the last version "
            f"are measured, so stop_when cannot end the run early; lower eval.every"
        )
    if s.train.checkpoint_every > s.run.steps:
        yield (
            f"[train] checkpoint_every = {s.train.checkpoint_every} with [run] steps = {s.run.steps}: no checkpoint on the way, "
            f"so a resume replays every step; lower checkpoint_every"
        )
    if s.reward.timeout_s >= s.run.watchdog_s:
        yield (
            f"[reward] timeout_s = {s.reward.timeout_s:g} with [run] watchdog_s = {s.run.watchdog_s:g}: one slow score may look "
            f"like a run that stands still; raise watchdog_s"
        )
    if s.train.late == "keep":
        yield f'[train] late = "keep" trains groups beyond staleness = {s.train.staleness}; the report will say how many'
    if s.model.dtype != "float32" and s.weights.canary and s.weights.canary_tolerance < 0.01:
        yield (
            f"[weights] canary_tolerance = {s.weights.canary_tolerance:g} fits float32, not {s.model.dtype}: good weights may be "
            f"refused; set it to 0.25"
        )
