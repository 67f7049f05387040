"""One moment of a run as the timeline keeps it: backlogs, pools, what each slot or process does, moves that were made.

For: one line of `history.jsonl`, and how two lines become one when room is needed; pure. Not for: gathering the facts
(`recorder`) or the file (`history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deploy.snapshot import Process, Slot, Snapshot
from scheduler.lifecycle import State

Moment = dict[str, Any]
"""at: seconds since 1970 · version · open · backlog: stream → groups · lanes: name → [pool, state, busy share or None,
weight version] · moves: what the scheduler ordered since the moment before, with its sentence."""

Lane = tuple[str, str, float | None, int]
LOADING = ("starting", "loading", "taking the run over", "replaying", "waiting for the run")
"""How the stage of a process begins that is not at work yet."""
SLOT_STATES = {
    State.MOVING: "loading",
    State.SERVING: "serving",
    State.DRAINING: "switching",
    State.VACANT: "vacant",
    State.PARKED: "parked",
    State.DEAD: "gone",
}


def moment_of(snapshot: Snapshot, decisions: Iterable[Mapping[str, Any]], at: float) -> Moment:
    """`decisions`: those since the moment before; only what they moved is kept."""
    moment: Moment = {
        "at": round(at, 2),
        "version": snapshot.version,
        "open": snapshot.open,
        "backlog": snapshot.backlog,
        "lanes": lanes_of(snapshot),
    }
    moves = [move_of(decision) for decision in decisions if decision.get("moves")]
    return {**moment, "moves": moves} if moves else moment


def lanes_of(snapshot: Snapshot) -> dict[str, Lane]:
    """Slots first, then processes that are on none."""
    slots = {name: slot_lane(slot, snapshot.processes.get(name)) for name, slot in sorted(snapshot.slots.items())}
    others = {name: process_lane(process) for name, process in snapshot.processes.items() if name not in slots}
    return {**slots, **others}


def slot_lane(slot: Slot, process: Process | None) -> Lane:
    state = SLOT_STATES[State(slot.state)]
    if state != "serving" or process is None:
        return slot.pool, state, None, -1
    return slot.pool, state, rounded(process.busy), process.version


def process_lane(process: Process) -> Lane:
    if not process.lives:
        return process.role, "gone", None, -1
    loads = process.stage.startswith(LOADING)
    return process.role, "loading" if loads else "serving", None if loads else rounded(process.busy), process.version


def rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 2)


def move_of(decision: Mapping[str, Any]) -> dict[str, Any]:
    """One mark on the timeline."""
    slots = [[move["slot"], move["source"] or "", move["target"] or ""] for move in decision["moves"]]
    return {"at": decision["at"], "slots": slots, "why": decision["sentence"]}


def halved(moments: Sequence[Moment]) -> list[Moment]:
    """Each two as one: what was at the second, busy shares averaged, all moves kept. The newest stays as it is."""
    pairs = list(zip(moments[0:-1:2], moments[1::2], strict=False))
    rest = moments[len(pairs) * 2 :]
    return [joined(first, second) for first, second in pairs] + list(rest)


def joined(first: Moment, second: Moment) -> Moment:
    lanes = {name: joined_lane(first["lanes"].get(name), lane) for name, lane in second["lanes"].items()}
    moves = [*first.get("moves", ()), *second.get("moves", ())]
    return {**second, "lanes": lanes, **({"moves": moves} if moves else {})}


def joined_lane(first: Sequence[Any] | None, second: Sequence[Any]) -> Sequence[Any]:
    """A lane that did the same in both has the mean of both shares."""
    if first is None or list(first[:2]) != list(second[:2]) or first[2] is None or second[2] is None:
        return second
    return [second[0], second[1], round((first[2] + second[2]) / 2, 2), second[3]]
