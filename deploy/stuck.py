"""What holds a run up, or may soon, and why: from one snapshot to findings, each with what mends it; pure.

For: `status`, `top`, the dashboard and the watchdog, which all judge by this and nothing else. Not for: noticing that a
run stands still (`watchdog`) or reading anything (`observer`). The cause comes first: what only follows from it (a
trainer that waits for a dead scorer's groups) is left out or comes after.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.reports import SERVER_FULL
from broker.standing import StreamStanding
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from deploy.absent import held_by, of_readers, reader_name
from deploy.finding import Finding, duration, megabytes
from deploy.fleet_facts import READERS
from deploy.snapshot import Process, Snapshot, mean

IDLE_LEASES = 2.0
"""An entry whose lease was not renewed for so many leases is stuck; after three others adopt it."""
STEPS_LATE = 5.0
STEP_LATE_S = 60.0
"""A step is late after so many usual ones, and at least so long."""
DEAD_SHARE = 0.01
DEAD_FEW = 8
"""Buried groups are too many above both: that share of all admitted, and so many."""


def findings(snapshot: Snapshot) -> list[Finding]:
    """All that is wrong with a living run, what holds it up first."""
    if not snapshot.live:
        return []
    if snapshot.unanswered:
        return [server_silent(snapshot)]
    found = list(too_many_dead(snapshot))
    if not snapshot.finished:
        found = [*of_server(snapshot), *found, *of_readers(snapshot), *of_work(snapshot)]
        if not any(finding.holds for finding in found) and step_is_late(snapshot):
            found.insert(0, standing_still(snapshot))
    return sorted(found, key=lambda finding: not finding.holds)


# The server


def server_silent(snapshot: Snapshot) -> Finding:
    return Finding(
        name="server-silent",
        what="the server does not answer",
        why=snapshot.unanswered,
        mend="every role waits for it and nothing is lost; start it again, or mend the network between",
        since_s=snapshot.unanswered_s,
    )


def of_server(snapshot: Snapshot) -> Iterator[Finding]:
    server = snapshot.server
    if snapshot.full_s > 0 or any(p.stage == SERVER_FULL for p in snapshot.of_roles("feeder").values()):
        limit = f"{megabytes(server.used_bytes)} of {megabytes(server.limit_bytes)} MB in use"
        yield Finding(
            name="server-full",
            what=f"the server refuses new work for want of memory ({limit}, {server.refused} writes refused)",
            why="prompts and rollouts wait to be written; what is scored still trains, and that frees memory",
            mend="raise its maxmemory (broker.maxmemory_mb of an embedded one), or keep fewer groups open "
            "(train.groups × (train.staleness + 1))",
            since_s=snapshot.full_s or None,
        )
    if server.disk_error or server.replica:
        why = server.disk_error or "it is a replica, which takes no writes"
        yield Finding(
            name="server-refuses",
            what="the server refuses every write",
            why=why,
            mend="free its disk" if server.disk_error else "give the run the address of the primary",
        )
    if server.policy not in ("", "noeviction"):
        yield Finding(
            name="server-evicts",
            what=f"the server's maxmemory-policy is {server.policy}",
            why="it deletes groups when its memory is full",
            mend="`CONFIG SET maxmemory-policy noeviction`",
            holds=False,
        )


# The work itself


def of_work(snapshot: Snapshot) -> Iterator[Finding]:
    for stream in (PROMPTS, ROLLOUTS):
        standing = snapshot.streams.get(stream, StreamStanding())
        if standing.idlest and standing.idlest.idle_s > IDLE_LEASES * snapshot.lease_s:
            name = reader_name(standing.idlest.reader)
            process = snapshot.processes.get(name)
            if process is not None and process.lives:
                yield entry_stuck(stream, standing, name, process, snapshot)
    decision = snapshot.decision
    if decision is not None and (decision.lease_left_s is None or decision.lease_left_s < 0):
        unserved = [p.name for p in snapshot.pools if p.slots and not p.wanted and snapshot.backlog.get(p.stream)]
        yield Finding(
            name="no-leader",
            what="no scheduler leads",
            why=(f"{decision.leader} was the last" if decision.leader else "none ever led")
            + "; slots stay where they are"
            + (f", and nobody serves {', '.join(unserved)}" if unserved else ""),
            mend="start one: `tidemill scheduler`",
            since_s=None if decision.lease_left_s is None else -decision.lease_left_s,
            holds=bool(unserved),
        )


def entry_stuck(stream: str, standing: StreamStanding, name: str, process: Process, snapshot: Snapshot) -> Finding:
    """A process that lives and brings an entry in its hands no further."""
    entry = standing.idlest
    assert entry is not None
    return Finding(
        name="entry-stuck",
        what=f"{name} (pid {process.pid}) brings group {entry.group} no further (entry {entry.entry_id} of `{stream}`, "
        f"delivery {entry.deliveries})",
        why=f"it reports, says {process.stage!r} and has finished nothing of the {held_by(name, snapshot)} it holds",
        mend=f"another reader adopts it {duration(3 * snapshot.lease_s)} after the last sign of work, if there is one; "
        f"`kill -USR1 {process.pid}` writes where it waits into logs/{name}.jsonl, `kill -9` frees the group",
        since_s=entry.idle_s,
    )


def too_many_dead(snapshot: Snapshot) -> Iterator[Finding]:
    if not snapshot.finished and 0 < snapshot.dead_limit <= snapshot.dead:
        yield Finding(
            name="admission-stopped",
            what=f"{snapshot.dead} groups are buried in `dead`, and with {snapshot.dead_limit} nothing new is admitted",
            why="what buries so many is no accident, and their bodies fill the server",
            mend="`tidemill inspect dead` says why of each; mend that, then `tidemill inspect dead replay --all` or "
            "`drop --all`, or raise broker.dead_limit in the run's settings.json and `tidemill resume`",
        )
        return
    admitted = sum(snapshot.counts.get(f"{kind}.admitted", 0) for kind in ("train", "eval"))
    few = DEAD_FEW if got_through(snapshot) else 0
    near = not snapshot.finished and 0 < snapshot.dead_limit <= 2 * snapshot.dead
    if near or snapshot.dead > max(few, DEAD_SHARE * admitted):
        yield Finding(
            name="dead-letters",
            what=f"{snapshot.dead} groups are buried in `dead`, of {admitted} admitted",
            why=why_too_many(snapshot, admitted),
            mend="`tidemill inspect dead` says why of each",
            holds=False,
        )


def why_too_many(snapshot: Snapshot, admitted: int) -> str:
    if snapshot.dead > DEAD_SHARE * admitted:
        return f"more than {DEAD_SHARE:.0%}: what buries them is no accident; the newest: {snapshot.newest_dead}"
    return f"with {snapshot.dead_limit} nothing new is admitted; the newest: {snapshot.newest_dead}"


def got_through(snapshot: Snapshot) -> bool:
    """Whether any group was ever scored: until then a single burial says that something is wrong from the start."""
    settled = any(".trained" in name or ".retired" in name for name, number in snapshot.counts.items() if number)
    return settled or snapshot.backlog.get(SCORED, 0) > 0


def step_is_late(snapshot: Snapshot) -> bool:
    usual = mean(step["seconds"] for step in snapshot.steps)
    age_s = snapshot.step_age_s
    return usual is not None and age_s is not None and age_s > max(STEP_LATE_S, STEPS_LATE * usual)


def standing_still(snapshot: Snapshot) -> Finding:
    """Nothing is wrong that can be seen: where most groups lie, and what their readers say."""
    lying = {stream: length for stream, length in snapshot.backlog.items() if length}
    if not lying:
        what, roles = "no group is open", ("feeder",)
    else:
        stream = max(lying, key=lambda name: lying[name])
        oldest = snapshot.streams[stream].idlest or snapshot.streams[stream].unread
        group = oldest.group if oldest else "unknown"
        what = f"{lying[stream]} of {snapshot.open} open groups lie in `{stream}` (oldest {group})"
        roles = READERS[stream]
    said = [f"{name} (pid {one.pid}) says {one.stage!r}" for name, one in snapshot.of_roles(*roles).items()]
    return Finding(
        name="stands-still",
        what=what,
        why="; ".join(said) or f"no {' and no '.join(roles)} has ever reported",
        mend="`kill -USR1 PID` writes what a process waits for into logs/",
        since_s=snapshot.step_age_s,
    )
