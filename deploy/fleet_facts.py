"""Slots, pools and the last decision of a run, made of what the server and the processes say; pure.

For: the fleet's part of a snapshot. Not for: reading it (`broker.standing`) or judging it (`stuck`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.fleet import Wanted
from broker.reports import SILENT_S
from broker.standing import FleetStanding
from broker.streams import PROMPTS, ROLLOUTS, SCORED, WORK_STREAMS
from deploy.snapshot import Decision, Pool, Process, Slot
from scheduler.lifecycle import State
from scheduler.pools import Pool as KindOfSlot

READERS = {PROMPTS: ("rollout",), ROLLOUTS: ("reward", "judge"), SCORED: ("trainer",)}
"""Work stream → roles of those that take from it."""


def slots_of(fleet: FleetStanding, run: str) -> dict[str, Slot]:
    """The slots that serve this run, by name; none while their fleet works for another."""
    if fleet.run != run:
        return {}
    return {name: slot_of(record, fleet.said.get(name, {})) for name, record in fleet.slots.items()}


def slot_of(record: Wanted, said: Mapping[str, Any]) -> Slot:
    age_s = float(said.get("age_s", SILENT_S + 1))
    gpus, cores = said.get("gpus", ""), said.get("cores", "")
    return Slot(
        state=str(said["state"]) if age_s <= SILENT_S else str(State.DEAD),
        pool=str(said.get("pool", "")),
        wanted=record.pool,
        pinned=record.pinned,
        for_s=float(said.get("for_s", 0.0)) + float(said.get("age_s", 0.0)),
        age_s=age_s,
        held=int(said.get("held", 0)),
        moves=int(said.get("moved", 0)),
        devices=f"GPU {gpus}" if gpus else f"cores {cores}" if cores else "",
        why=str(said.get("detail", "")) or record.reason,
    )


def pools_of(kinds: Sequence[KindOfSlot], slots: Mapping[str, Slot], processes: Mapping[str, Process]) -> list[Pool]:
    """Who takes from each work stream, in the order work flows: a pool of slots, else processes."""
    by_stream = {kind.stream: kind for kind in kinds} if slots else {}
    found: list[Pool] = []
    for stream in WORK_STREAMS:
        if kind := by_stream.get(stream):
            found.append(pool_of_slots(kind, slots))
        else:
            found.append(pool_of_processes(stream, processes))
    return found


def pool_of_slots(kind: KindOfSlot, slots: Mapping[str, Slot]) -> Pool:
    there = [slot for slot in slots.values() if slot.pool == kind.name and slot.state == State.SERVING]
    return Pool(
        name=kind.name,
        stream=kind.stream,
        slots=True,
        wanted=sum(slot.wanted == kind.name for slot in slots.values()),
        serving=len(there),
        busy=sum(slot.held > 0 for slot in there),
    )


def pool_of_processes(stream: str, processes: Mapping[str, Process]) -> Pool:
    """Processes that said goodbye are wanted no more."""
    roles = READERS[stream]
    staying = [process for process in processes.values() if process.role in roles and not process.left]
    there = [process for process in staying if process.lives and process.ready]
    return Pool(
        name=" ".join(dict.fromkeys(process.role for process in staying)) or roles[0],
        stream=stream,
        slots=False,
        wanted=len(staying),
        serving=len(there),
        busy=sum(process.held > 0 for process in there),
    )


def decision_of(fleet: FleetStanding, run: str) -> Decision | None:
    """The last word of the scheduler; None where no slots serve this run."""
    if fleet.run != run or not fleet.slots:
        return None
    return Decision(
        sentence=str(fleet.decision.get("sentence", "")),
        age_s=fleet.decision_age_s,
        leader=fleet.leader,
        lease_left_s=fleet.lease_left_s,
    )
