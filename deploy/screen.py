"""A run on one screen: how far it is, who takes from which stream, what everybody does, the books, what is stuck.

For: `status`, `top` and the launcher's terminal, which all draw this. Not for: lines in a log (`progress`) or deciding
what is wrong (`stuck`). Some thirty lines, however many slots there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from broker.standing import StreamStanding
from deploy.finding import Finding, duration, megabytes
from deploy.fleet_facts import READERS
from deploy.headline import clock, measures
from deploy.snapshot import Decision, Pool, Process, Slot, Snapshot
from deploy.stuck import findings
from scheduler.lifecycle import State

WorkerRow = tuple[Text, Text, Text, float | None, Text, Text]
"""Name, state, for how long, share of work, groups in hand, what it says."""
WORKERS_SHOWN = 10
LINES_OF_TROUBLE = 7
"""The first finding in full, each further kind of finding on a line."""
LONGEST_WHY = 400
BAR = 24
ROLES_THAT_LOAD = {role for roles in READERS.values() for role in roles}
STYLES = {
    State.SERVING: "green",
    State.MOVING: "cyan",
    State.DRAINING: "yellow",
    State.VACANT: "dim",
    State.PARKED: "bold red",
    State.DEAD: "bold red",
}


def screen(snapshot: Snapshot) -> RenderableType:
    """Everything in one frame."""
    rows: list[RenderableType] = [head(snapshot)]
    if snapshot.version >= 0:
        rows += [Text("   ".join(said))] if (said := measures(snapshot)) else []
        rows.append(books(snapshot))
    if any(snapshot.backlog.values()) or any(pool.wanted for pool in snapshot.pools):
        rows.append(pools(snapshot))
    if snapshot.processes or snapshot.slots:
        rows.append(workers(snapshot))
    if snapshot.decision is not None:
        rows.append(decided(snapshot.decision))
    found = findings(snapshot)
    rows += trouble(snapshot, found)
    title = f"{snapshot.run} · {clock(snapshot.elapsed_s)}"
    style = "red" if any(finding.holds for finding in found) else "cyan" if snapshot.live else "dim"
    return Panel(Group(*rows), title=title, title_align="left", border_style=style)


def head(snapshot: Snapshot) -> RenderableType:
    """Stage, how far it is, and the live version."""
    row = Table.grid(padding=(0, 2))
    words = f"{snapshot.stage}  {snapshot.detail}".strip()
    parts: list[RenderableType] = [Text(words, style="bold")]
    if snapshot.share is not None:
        parts.append(ProgressBar(total=1.0, completed=snapshot.share, width=BAR))
    elif snapshot.version >= 0:
        parts += [
            Text(f"step {snapshot.version}/{snapshot.goal.steps}"),
            ProgressBar(total=snapshot.goal.steps, completed=snapshot.version, width=BAR),
        ]
    if snapshot.goal.stop_when:
        parts.append(Text(f"until {snapshot.goal.stop_when}", style="dim"))
    row.add_row(*parts)
    return row


def books(snapshot: Snapshot) -> Text:
    """admitted = trained + retired + buried + open, and the server they lie on."""
    of = snapshot.books()
    terms = " + ".join(f"{name} {of[name]:,}" for name in ("trained", "retired", "buried", "open"))
    said = f"version {snapshot.version}   admitted {of['admitted']:,} = {terms}"
    if snapshot.cap:
        said += f" (at most {snapshot.cap:,})"
    if snapshot.dead:
        said += f"   dead letters {snapshot.dead}"
    server = snapshot.server
    if server.name and snapshot.live:
        limit = f" of {megabytes(server.limit_bytes)}" if server.limit_bytes else ""
        said += f"   {server.name} {server.version}, {megabytes(server.used_bytes)}{limit} MB"
    return Text(said)


def pools(snapshot: Snapshot) -> RenderableType:
    """One row per work stream: who takes from it, what waits, what is in hand."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("pool", "takes from"):
        table.add_column(name, no_wrap=True)
    for name in ("wanted", "serving", "busy", "undelivered", "in hand"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("oldest in hand")
    for pool in snapshot.pools:
        table.add_row(*pool_row(pool, snapshot.streams.get(pool.stream, StreamStanding())))
    return table


def pool_row(pool: Pool, stream: StreamStanding) -> list[RenderableType]:
    serving = Text(str(pool.serving), style="yellow" if pool.serving < pool.wanted else "")
    held = "" if stream.idlest is None else f"{stream.idlest.group} in {stream.idlest.reader}, {idle(stream)}"
    return [
        Text(pool.name),
        Text(pool.stream),
        Text(str(pool.wanted)),
        serving,
        Text(str(pool.busy)),
        Text(f"{stream.undelivered:,}"),
        Text(f"{stream.pending:,}"),
        cut(held),
    ]


def idle(stream: StreamStanding) -> str:
    assert stream.idlest is not None
    return f"idle {duration(stream.idlest.idle_s)}, there {duration(stream.idlest.age_s)}"


def workers(snapshot: Snapshot) -> RenderableType:
    """A row per slot and per process beside the slots, those in trouble first; the rest are counted."""
    slots = sorted(snapshot.slots.items(), key=lambda item: item[1].state not in (State.PARKED, State.DEAD))
    beside = {name: one for name, one in snapshot.processes.items() if name not in snapshot.slots and not one.left}
    rows = [slot_row(name, slot, snapshot.processes.get(name)) for name, slot in slots]
    rows += [process_row(name, one) for name, one in sorted(beside.items(), key=lambda item: item[1].lives)]
    table = workers_table("slot" if snapshot.slots else "process", rows[:WORKERS_SHOWN])
    if len(rows) <= WORKERS_SHOWN:
        return table
    return Group(table, Text(f"and {len(rows) - WORKERS_SHOWN} more; all: {states(snapshot.slots, beside)}", "dim"))


def workers_table(noun: str, rows: Sequence[WorkerRow]) -> Table:
    """Where the screen is narrow only the last column gives way."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in (noun, "state", "for", "busy"):
        table.add_column(name, no_wrap=True)
    table.add_column("in hand", justify="right", no_wrap=True)
    table.add_column("says")
    for name, state, age, share, held, said in rows:
        table.add_row(name, state, age, bar(share), held, said)
    return table


def states(slots: Mapping[str, Slot], beside: Mapping[str, Process]) -> str:
    """How many slots are in which state, how many processes of which role."""
    of_slots = Counter(slot.state for slot in slots.values())
    of_roles = Counter(process.role for process in beside.values())
    return ", ".join(f"{number} {name}" for name, number in (*of_slots.items(), *of_roles.items()))


def slot_row(name: str, slot: Slot, process: Process | None) -> WorkerRow:
    state = Text(slot.state, style=STYLES.get(State(slot.state), ""))
    state.append(f" {slot.pool}" if slot.pool else "")
    state.append(f" → {slot.wanted or 'none'}" if slot.wanted != slot.pool else "")
    state.append(" (pinned)" if slot.pinned else "")
    is_well = slot.state in (State.SERVING, State.MOVING) and process is not None and process.lives
    said = process.stage if is_well and process is not None else slot.why
    share = process.busy if is_well and process is not None else None
    return Text(name), state, Text(duration(slot.for_s)), share, Text(str(slot.held)), cut(said)


def process_row(name: str, process: Process) -> WorkerRow:
    if process.lives:
        loading = process.role in ROLES_THAT_LOAD and not process.ready
        state, age = Text("loading", style="cyan") if loading else Text("working", style="green"), ""
    else:
        state, age = Text("silent", style="bold red"), duration(process.age_s)
    return Text(name), state, Text(age), process.busy, Text(str(process.held)), cut(process.stage)


def cut(words: str) -> Text:
    """The end of a row, which gives way where the screen is narrow."""
    return Text(words, style="dim", no_wrap=True, overflow="ellipsis")


def bar(share: float | None) -> RenderableType:
    """How much of the last seconds was work."""
    if share is None:
        return Text("")
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=1.0, completed=share, width=BAR // 2), Text(f"{share:>4.0%}"))
    return row


def decided(decision: Decision) -> Text:
    """What the scheduler did last, and when."""
    if not decision.sentence:
        return Text("no scheduler has decided anything yet: slots stay where they are", style="dim")
    return Text.assemble((f"decided {duration(decision.age_s)} ago: ", "dim"), decision.sentence)


def trouble(snapshot: Snapshot, found: Sequence[Finding]) -> list[RenderableType]:
    """What is stuck and why, or that nothing is."""
    if not snapshot.live:
        last = f"not running; this is how it was last seen; `tidemill resume {snapshot.run}` goes on"
        words = f"ended: {snapshot.finished}" if snapshot.finished else last
        return [Text(words, style="bold")]
    if not found:
        return [Text("ended: " + snapshot.finished, style="bold")] if snapshot.finished else [Text("nothing is stuck")]
    kinds = {name: [one for one in found if one.name == name] for name in dict.fromkeys(one.name for one in found)}
    first, *others = kinds.values()
    lines = [*in_full(first[0], len(first) - 1), *(in_short(alike[0], len(alike) - 1) for alike in others)]
    return list(lines[:LINES_OF_TROUBLE])


def headline(finding: Finding, alike: int) -> Text:
    mark = ("STUCK ", "bold red") if finding.holds else ("look  ", "bold yellow")
    since = "" if finding.since_s is None else f" for {duration(finding.since_s)}"
    more = f" (and {alike} more like it)" if alike else ""
    return Text.assemble(mark, finding.what, (since, "bold"), more)


def in_full(finding: Finding, alike: int) -> list[Text]:
    why = Text(f"      why: {finding.why}")
    why.truncate(LONGEST_WHY, overflow="ellipsis")
    return [headline(finding, alike), why, Text(f"      mend: {finding.mend}", style="dim")]


def in_short(finding: Finding, alike: int) -> Text:
    line = headline(finding, alike).append(f": {finding.why}", "dim")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
