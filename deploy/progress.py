"""A run on the screen: a live panel on a terminal, plain lines elsewhere (pipes, CI).

For: drawing snapshots and saying sentences. Not for: gathering or judging them.
"""

from __future__ import annotations

from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.snapshot import Snapshot

PLAIN_EVERY_S = 5.0
"""Seconds between plain lines while nothing remarkable happens."""


class Display(Protocol):
    """Where a run is shown."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw the newest look."""
        ...

    def say(self, sentence: str) -> None:
        """One line that stays: something happened."""
        ...

    def close(self) -> None: ...


def display_on(console: Console) -> Display:
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """A panel redrawn in place; sentences scroll above it."""

    def __init__(self, console: Console) -> None:
        self.live = Live(console=console, refresh_per_second=4, transient=False)
        self.live.start()

    def show(self, snapshot: Snapshot) -> None:
        self.live.update(panel(snapshot))

    def say(self, sentence: str) -> None:
        self.live.console.print(sentence, highlight=False, markup=False)

    def close(self) -> None:
        self.live.stop()


class PlainDisplay:
    """A line now and then: at every new stage, every measured accuracy, else every few seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        if worth_a_line(self.shown, snapshot):
            self.shown = snapshot
            self.say(line(snapshot))

    def say(self, sentence: str) -> None:
        print(sentence, file=self.console.file, flush=True)

    def close(self) -> None:
        pass


def worth_a_line(shown: Snapshot | None, new: Snapshot) -> bool:
    if shown is None or new.elapsed_s - shown.elapsed_s >= PLAIN_EVERY_S:
        return True
    return (new.stage, new.accuracy, new.finished) != (shown.stage, shown.accuracy, shown.finished)


def line(snapshot: Snapshot) -> str:
    """Everything in one line, for a log."""
    parts = [f"{clock(snapshot.elapsed_s)}  {snapshot.stage}"]
    if snapshot.detail:
        parts.append(snapshot.detail)
    if snapshot.version >= 0:
        parts += [f"step {snapshot.version}/{snapshot.goal.steps}", *measures(snapshot)]
    if any(snapshot.backlog.values()):
        parts.append("backlog " + backlog(snapshot, " "))
    if shares := snapshot.busy_by_role():
        parts.append("busy " + " ".join(f"{role} {share:.0%}" for role, share in shares.items()))
    return "  ".join(parts)


def panel(snapshot: Snapshot) -> RenderableType:
    """Everything in one frame, for a terminal."""
    rows: list[RenderableType] = [Text(f"{snapshot.stage}  {snapshot.detail}".strip(), style="bold")]
    if snapshot.version >= 0:
        step = Table.grid(padding=(0, 2))
        step.add_row(
            f"step {snapshot.version}/{snapshot.goal.steps}",
            ProgressBar(total=snapshot.goal.steps, completed=snapshot.version, width=30),
            f"until {snapshot.goal.stop_when}" if snapshot.goal.stop_when else "",
        )
        rows += [step, Text("   ".join(measures(snapshot)))]
        rows.append(Text(f"backlog   {backlog(snapshot, ' · ')}   open {snapshot.open}"))
    rows.append(busy_table(snapshot))
    title = f"{snapshot.run} · {clock(snapshot.elapsed_s)}"
    return Panel(Group(*rows), title=title, title_align="left", border_style="cyan")


def busy_table(snapshot: Snapshot) -> RenderableType:
    """A bar of work per process, with what it says it does."""
    table = Table.grid(padding=(0, 2))
    for name, process in snapshot.processes.items():
        share = process.busy
        bar = ProgressBar(total=1.0, completed=share or 0.0, width=20)
        table.add_row(
            name, bar, "" if share is None else f"{share:>4.0%}", Text(process.stage, style="dim", overflow="ellipsis")
        )
    return table


def measures(snapshot: Snapshot) -> list[str]:
    """Reward, accuracy, staleness and speeds, as far as known."""
    found: list[str] = []
    if snapshot.reward is not None:
        found.append(f"reward {snapshot.reward:.3f}")
    if snapshot.accuracy is not None and snapshot.accuracy_start is not None:
        found.append(f"accuracy {snapshot.accuracy_start:.3f} → {snapshot.accuracy:.3f}")
    if snapshot.staleness_mean is not None:
        found.append(f"staleness {snapshot.staleness_mean:.2f} (≤ {snapshot.goal.staleness})")
    if snapshot.tokens_per_s is not None:
        found.append(f"{snapshot.tokens_per_s:,.0f} tokens/s")
    if snapshot.completions_per_s is not None:
        found.append(f"{snapshot.completions_per_s:,.0f} completions/s")
    return found


def backlog(snapshot: Snapshot, between: str) -> str:
    return between.join(f"{stream} {length}" for stream, length in snapshot.backlog.items())


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
