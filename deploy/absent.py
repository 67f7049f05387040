"""Who is missing: readers of a stream, a feeder, a trainer, slots, and processes that went without a word; pure.

For: that part of `stuck`. Not for: those that live and bring their work no further.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.reports import SILENT_S
from broker.standing import StreamStanding
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from deploy.finding import Finding, count, duration, gone, goodbye
from deploy.fleet_facts import READERS
from deploy.snapshot import WAITING_FOR_THE_TRAINER, Pool, Process, Slot, Snapshot
from scheduler.lifecycle import State

FORGOTTEN_S = 600.0
"""A process that went without a word, holds nothing and whose work others do is named for so long."""


def of_readers(snapshot: Snapshot) -> Iterator[Finding]:
    """Streams without a reader, and whoever went silent or was parked, each once."""
    named: set[str] = set()
    for pool in snapshot.pools:
        finding, blamed = without_reader(snapshot, pool)
        if finding:
            named |= blamed
            yield finding
    if feeder := without_feeder(snapshot):
        named |= set(snapshot.of_roles("feeder"))
        yield feeder
    if snapshot.stage == WAITING_FOR_THE_TRAINER and not any(p.lives for p in snapshot.of_roles("trainer").values()):
        yield not_opened(snapshot)
        named |= set(snapshot.of_roles("trainer"))
    for name, slot in snapshot.slots.items():
        if name not in named and slot.state in (State.PARKED, State.DEAD) and not (slot.wanted == "" and slot.pinned):
            named.add(name)
            yield slot_gone(name, slot, snapshot)
    for name, process in snapshot.processes.items():
        if name not in named and is_missed(name, process, snapshot):
            yield silent(name, process, snapshot)


def without_reader(snapshot: Snapshot, pool: Pool) -> tuple[Finding | None, set[str]]:
    """Work lies in a stream and nobody takes it; and who is thereby named. Slots that share their time among pools
    leave streams alone for a while: that is the scheduler's affair as long as one leads.
    """
    stream = snapshot.streams.get(pool.stream, StreamStanding())
    since_s = waiting_s(stream)
    if not stream.backlog or since_s <= SILENT_S:
        return None, set()
    if pool.slots:
        takers = {name: slot for name, slot in snapshot.slots.items() if slot.wanted == pool.name}
        working = (State.SERVING, State.MOVING, State.DRAINING)
        if not takers or any(slot.state in working for slot in takers.values()):
            return None, set()
        why = "; ".join(f"{name} is {slot.state} ({slot.why or 'no word why'})" for name, slot in takers.items())
        return lying(snapshot, pool, why, "`tidemill slots` shows them; start their workers again"), set(takers)
    readers = snapshot.of_roles(*READERS[pool.stream])
    if any(process.lives for process in readers.values()):
        return None, set()
    why = "; ".join(gone(name, process) for name, process in readers.items() if not process.left)
    why = why or f"{'; '.join(map(goodbye, readers, readers.values())) or f'no {pool.name} has ever reported'}"
    return lying(snapshot, pool, why, "start one; a launcher does it by itself once the old process is dead"), set(
        readers
    )


def lying(snapshot: Snapshot, pool: Pool, why: str, mend: str) -> Finding:
    stream = snapshot.streams[pool.stream]
    first = stream.unread.group if stream.unread else stream.idlest.group if stream.idlest else ""
    held = f", {stream.pending} of them in the hands of {' and '.join(stream.readers)}" if stream.pending else ""
    return Finding(
        name="no-reader",
        what=f"{count(stream.backlog, 'group')} wait in `{pool.stream}` (oldest {first}) and nobody takes them",
        why=why + held,
        mend=mend,
        since_s=waiting_s(stream),
    )


def waiting_s(stream: StreamStanding) -> float:
    """How long its oldest entries have been waiting to be read, or idle in somebody's hands."""
    idle_s = stream.idlest.idle_s if stream.idlest else 0.0
    return max(idle_s, stream.unread.age_s if stream.unread else 0.0)


def without_feeder(snapshot: Snapshot) -> Finding | None:
    """Groups that only a feeder can bring are waited for, and there is none."""
    feeders = snapshot.of_roles("feeder")
    upstream = snapshot.backlog.get(PROMPTS, 0) + snapshot.backlog.get(ROLLOUTS, 0)
    scored = snapshot.backlog.get(SCORED, 0)
    if not snapshot.is_open or any(p.lives for p in feeders.values()):
        return None
    if snapshot.missing <= 0 and (upstream or scored >= snapshot.groups):
        return None
    restored = f", {snapshot.missing} restored groups among them" if snapshot.missing > 0 else ""
    words = [goodbye(name, one) if one.left else gone(name, one) for name, one in feeders.items()]
    return Finding(
        name="no-feeder",
        what=f"the trainer waits for groups that cannot come ({scored} of {snapshot.groups} scored, "
        f"{upstream} on the way{restored})",
        why="; ".join(words) or "no feeder has ever reported",
        mend="start a feeder (`python -m producers feeder --run FOLDER`), or `tidemill resume` the run",
        since_s=snapshot.step_age_s,
    )


def not_opened(snapshot: Snapshot) -> Finding:
    trainers = snapshot.of_roles("trainer")
    words = [goodbye(name, one) if one.left else gone(name, one) for name, one in trainers.items()]
    return Finding(
        name="not-open",
        what="no trainer has opened the run on this server",
        why="; ".join(words) or "none has reported yet",
        mend="until one does nobody works, and nothing is lost; start a trainer, or `tidemill resume` the run",
        holds=bool(trainers),
    )


def slot_gone(name: str, slot: Slot, snapshot: Snapshot) -> Finding:
    """A parked or dead slot; it holds the run up where nobody else serves its pool."""
    pool = next((one for one in snapshot.pools if one.name == slot.wanted), None)
    parked = slot.state == State.PARKED
    return Finding(
        name="slot-parked" if parked else "slot-dead",
        what=f"{name} is {slot.state}, wanted in {slot.wanted or 'no pool'}",
        why=slot.why if parked else f"it has not reported for {duration(slot.age_s)}: its worker or host has gone",
        mend=f"mend that, then `tidemill slots move {name} {slot.wanted or 'POOL'}`" if parked else "start its worker",
        since_s=slot.for_s if parked else slot.age_s,
        holds=pool is not None and pool.serving == 0 and bool(snapshot.backlog.get(pool.stream)),
    )


def is_missed(name: str, process: Process, snapshot: Snapshot) -> bool:
    """It is silent, and that matters: it holds work, or went just now. A slot without work has no process."""
    slot = snapshot.slots.get(name)
    if slot is not None and slot.state not in (State.SERVING, State.DRAINING):
        return False
    return process.silent and (process.age_s < FORGOTTEN_S or bool(held_by(name, snapshot)))


def silent(name: str, process: Process, snapshot: Snapshot) -> Finding:
    held = held_by(name, snapshot)
    return Finding(
        name="process-silent",
        what=gone(name, process),
        why=f"it holds {held}" if held else "it holds nothing",
        mend=f"others adopt what it holds {duration(3 * snapshot.lease_s)} after its last sign; "
        f"`kill -9 {process.pid}` there lets whoever started it start it again",
        since_s=process.age_s,
        holds=bool(held),
    )


def held_by(name: str, snapshot: Snapshot) -> str:
    """What the starts of a process or slot hold, in words; empty when nothing."""
    found: list[str] = []
    for stream, standing in snapshot.streams.items():
        held = sum(number for reader, number in standing.readers.items() if reader_name(reader) == name)
        if held:
            found.append(f"{count(held, 'group')} of `{stream}`")
    return " and ".join(found)


def reader_name(reader: str) -> str:
    """The process or slot of a reader: `rollout-0.3` is its third start."""
    return reader.rpartition(".")[0] or reader
