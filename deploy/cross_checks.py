"""What two settings together make impossible, or unwise; each finding names both with their numbers.

For: sections that are right one by one. Not for: one section alone (its own types), the machine's state (`doctor`), or
names in registries (whoever builds the thing says what it knows). Everything here is a pure function of the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.address import PASSWORD_FILE_VARIABLE, has_password, without_password
from broker.admission import cap
from broker.errors import Misconfigured
from broker.settings import URL_VARIABLE
from broker.stop_rule import parse
from consumers.settings import needs_judge
from deploy.run_settings import RunSettings

BYTES_PER_TOKEN = 16
"""In a group's body: token 4, log-prob 4, mask 1, its text about 5, rounded up."""

URL_KINDS = ("redis://", "rediss://", "unix://")

GROUP_RELATIVE = ("cispo", "dapo", "dr_grpo", "grpo", "gspo", "rloo")
"""Algorithms that compare a rollout with its siblings: one sibling alone never gives a signal."""


def problems_between(settings: RunSettings) -> list[str]:
    """Everything that could never train; empty when the settings can."""
    return [f"{problem}; nothing was started; {mend}" for problem, mend in impossible(settings)]


def impossible(s: RunSettings) -> Iterator[tuple[str, str]]:
    """(what is wrong, the mend)"""
    rollout, train = s.rollout, s.train
    if rollout.top_p < 1 or rollout.top_k > 0:
        truncated = f"[rollout] top_p = {rollout.top_p:g}, top_k = {rollout.top_k}"
        yield f"{truncated}: the trainer cannot correct for a truncated distribution", "set top_p = 1 and top_k = 0"
    if s.algorithm.name in GROUP_RELATIVE and rollout.group_size == 1:
        yield f"[algorithm] {s.algorithm.name} compares siblings, but [rollout] group_size = 1", "set group_size > 1"
    if rollout.group_size > rollout.max_rows:
        wrong = f"[rollout] group_size = {rollout.group_size} siblings do not fit max_rows = {rollout.max_rows}"
        yield wrong, f"set max_rows to {rollout.group_size} or more"
    if train.ranks > 1 and train.learner != "deepspeed":
        wrong = f'[train] ranks = {train.ranks}: only the learner deepspeed is spread over ranks, not "{train.learner}"'
        yield wrong, "set ranks = 1"
    if train.optimizer_steps > train.groups:
        wrong = f"[train] optimizer_steps = {train.optimizer_steps} with groups = {train.groups}: some would have none"
        yield wrong, "raise groups or lower optimizer_steps"
    if has_password(s.broker.url):
        wrong = f"[broker] url = {without_password(s.broker.url)} holds a password, which would lie in the run's folder"
        yield wrong, f"take it out; give the address in {URL_VARIABLE}, or a file in {PASSWORD_FILE_VARIABLE}"
    elif not s.broker.url.startswith(URL_KINDS) and s.broker.url != "embedded":
        yield f'[broker] url = "{s.broker.url}" is no address', f'write "embedded" or {", ".join(URL_KINDS)}…'
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
        wrong = (
            f'[run] stop_when = "{s.run.stop_when}" needs evaluations, but [prompts] eval.size = 0 switches them off'
        )
        yield wrong, "set prompts.eval.size, or leave stop_when empty"


def memory_that_cannot_hold(s: RunSettings) -> Iterator[tuple[str, str]]:
    """All open groups at their longest must fit half of an embedded server's memory."""
    if s.broker.url != "embedded":
        return
    groups, versions = s.train.groups, s.train.staleness + 1
    siblings, tokens = s.rollout.group_size, s.rollout.max_tokens
    needed_mb = cap(groups, s.train.staleness) * siblings * tokens * BYTES_PER_TOKEN / 2**20
    if needed_mb > s.broker.maxmemory_mb / 2:
        open_groups = f"{groups * versions} open groups (groups × (staleness + 1) = {groups} × {versions})"
        size = f"of {siblings} × {tokens} tokens may take {needed_mb:.0f} MB, and must fit half of it"
        wrong = f"[broker] maxmemory_mb = {s.broker.maxmemory_mb}: {open_groups} {size}"
        yield wrong, f"set maxmemory_mb to {2 * int(needed_mb + 1)} or more"


def warnings_between(s: RunSettings, cores: int) -> list[str]:
    """What runs, but probably not as meant on a machine with so many usable cores."""
    return [f"{finding}; {mend}" for finding, mend in unwise(s, cores)]


def unwise(s: RunSettings, cores: int) -> Iterator[tuple[str, str]]:
    """(what may surprise, the mend)"""
    steps = f"with [run] steps = {s.run.steps}"
    if s.run.stop_when and s.prompts.eval.every > s.run.steps:
        finding = f"[prompts] eval.every = {s.prompts.eval.every} {steps}: only the first and the last are measured"
        yield f"{finding}, so stop_when cannot end the run early", "lower eval.every"
    if s.train.checkpoint_every > s.run.steps:
        finding = f"[train] checkpoint_every = {s.train.checkpoint_every} {steps}: a resume replays every step"
        yield finding, "lower checkpoint_every"
    producers = s.pool("rollout").processes
    if s.train.ranks > 1 and s.train.ranks + producers > cores:
        finding = f"[train] ranks = {s.train.ranks} beside [pools.rollout] processes = {producers} on {cores} cores"
        yield f"{finding}: they take turns", "lower ranks"
    if s.scheduler.slots > 2 * cores and s.rollout.engine != "scripted":
        finding = f"[scheduler] slots = {s.scheduler.slots} on {cores} cores: they take turns"
        yield f"{finding}, and each loads a model of its own", "ask for fewer slots"
    if s.reward.timeout_s >= s.run.watchdog_s:
        finding = f"[reward] timeout_s = {s.reward.timeout_s:g} with [run] watchdog_s = {s.run.watchdog_s:g}"
        yield f"{finding}: one slow score may look like a run that stands still", "raise watchdog_s"
    if "judge" in s.pools and not needs_judge(s.reward):
        finding = "[pools.judge] without a part of [reward] that is scored on a slot: no such pool is used"
        yield finding, 'name a judge in [reward] parts, or write on = "slot" beside your own'
    if s.train.late == "keep":
        finding = f'[train] late = "keep" trains groups beyond staleness = {s.train.staleness}'
        yield finding, "the report will say how many"
    if s.model.dtype != "float32" and s.weights.canary and s.weights.canary_tolerance < 0.01:
        finding = f"[weights] canary_tolerance = {s.weights.canary_tolerance:g} fits float32, not {s.model.dtype}"
        yield f"{finding}: good weights may be refused", "use float32, or set it to about 1"
