"""What a person's verbs do to buried groups, as pure functions; see `transitions` for what all verbs have in common.

For: the meaning of `revive` and `drop`; each line of `dead` is one transition. Not for: burying (`transitions.bury`).
"""

from __future__ import annotations

from dataclasses import replace

from broker import entries
from broker.codec import prompt_fields, size_of
from broker.operator_contract import DeadGroup, DeadVerdict
from broker.run_record import Caller, Dead, RunRecord, counted, entries_added, without
from broker.streams import PROMPTS
from broker.transitions import check_entered


def revive(run: RunRecord, caller: Caller, asked: DeadGroup) -> tuple[RunRecord, DeadVerdict]:
    """The group is open again, at the live version."""
    check_entered(run, caller)
    line = found(run, asked)
    if isinstance(line, str):
        return run, line
    group = line.entry.group
    if refused := refusal(run, line):
        return run, refused
    fields = prompt_fields(run.bodies[group])
    last = run.live_version + run.limits.staleness
    entry = entries.revived(line.entry, floor=run.live_version, last_version=last, size=size_of(fields))
    after = entries_added(replace(run, bodies={**run.bodies, group: fields}), PROMPTS, [entry])
    return buried_less(after, line, {"train.buried": -1}), "done"


def refusal(run: RunRecord, line: Dead) -> DeadVerdict | None:
    """Why the group cannot be worked on again."""
    if line.entry.kind != "train":
        return "measured"
    if run.finished:
        return "finished"
    if line.forgotten:
        return "forgotten"
    if not run.bodies.get(line.entry.group):
        return "gone"
    return None if run.room("train") else "full"


def drop(run: RunRecord, caller: Caller, asked: DeadGroup) -> tuple[RunRecord, DeadVerdict]:
    """The group is retired; one of whose burial the restored books may know nothing is not counted."""
    check_entered(run, caller)
    line = found(run, asked)
    if isinstance(line, str):
        return run, line
    kind = line.entry.kind
    after = replace(run, bodies=without(run.bodies, [line.entry.group]))
    counts = {} if line.forgotten else {f"{kind}.buried": -1, f"{kind}.retired.dropped": 1}
    return buried_less(after, line, counts), "done"


def found(run: RunRecord, asked: DeadGroup) -> Dead | DeadVerdict:
    """The line, or why it cannot be touched."""
    line = next((one for one in run.dead if (one.id, one.entry.group) == (asked.id, asked.entry.group)), None)
    if line is None:
        return "gone"
    return "open" if line.entry.group in run.open else line


def buried_less(run: RunRecord, line: Dead, counts: dict[str, int]) -> RunRecord:
    return counted(replace(run, dead=tuple(one for one in run.dead if one.id != line.id)), counts)
