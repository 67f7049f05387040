"""A run as it goes: one live screen on a terminal, plain lines elsewhere (pipes, CI).

For: showing snapshots and saying sentences. Not for: gathering or judging them, or how the screen looks (`screen`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from deploy.finding import Finding
from deploy.headline import clock, measures
from deploy.screen import screen
from deploy.snapshot import TRAINING, Snapshot
from deploy.stuck import findings

PLAIN_EVERY_S = 5.0
"""Seconds between plain lines while it trains and nothing remarkable happens."""
WAITING_EVERY_S = 2.0
"""The same before and after: somebody wonders what takes so long."""


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
    return LiveDisplay(console) if can_redraw(console) else PlainDisplay(console)


def can_redraw(console: Console) -> bool:
    """Whether what stands there can be drawn over: no pipe, nor a terminal that only appends (`TERM=dumb`)."""
    return console.is_terminal and not console.is_dumb_terminal


class LiveDisplay:
    """One screen redrawn in place, its clock ticking also while nothing new is known; sentences scroll above it."""

    def __init__(self, console: Console, *, alone: bool = False) -> None:
        """`alone`: on the whole terminal, which is as it was afterwards."""
        self.snapshot: Snapshot | None = None
        self.shown_at = time.monotonic()
        self.live = Live(console=console, refresh_per_second=4, screen=alone, get_renderable=self.drawn)
        self.live.start()

    def drawn(self) -> RenderableType:
        if self.snapshot is None:
            return Text("…")
        elapsed_s = self.snapshot.elapsed_s + time.monotonic() - self.shown_at
        return screen(replace(self.snapshot, elapsed_s=elapsed_s))

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot, self.shown_at = snapshot, time.monotonic()

    def say(self, sentence: str) -> None:
        self.live.console.print(sentence, highlight=False, markup=False)

    def close(self) -> None:
        self.live.stop()


class PlainDisplay:
    """A line now and then: at every new stage, every measured accuracy, else every few seconds; below it what is wrong,
    told when it is new.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown: Snapshot | None = None
        self.seen: set[str] = set()
        """Kinds of findings at the last line."""
        self.told: set[str] = set()

    def show(self, snapshot: Snapshot) -> None:
        if worth_a_line(self.shown, snapshot):
            self.shown = snapshot
            self.say(line(snapshot))
            self.tell([one for one in findings(snapshot) if one.holds or snapshot.stage == TRAINING])

    def tell(self, found: Sequence[Finding]) -> None:
        """What is wrong at two lines in a row is told once, until it is over."""
        kinds = {finding.name: finding for finding in reversed(found)}
        for name, finding in reversed(kinds.items()):
            if name in self.seen and name not in self.told:
                self.say(("STUCK  " if finding.holds else "look  ") + finding.sentence)
        self.told = kinds.keys() & (self.told | self.seen)
        self.seen = set(kinds)

    def say(self, sentence: str) -> None:
        print(sentence, file=self.console.file, flush=True)

    def close(self) -> None:
        pass


def worth_a_line(shown: Snapshot | None, new: Snapshot) -> bool:
    every_s = PLAIN_EVERY_S if new.stage == TRAINING else WAITING_EVERY_S
    if shown is None or new.elapsed_s - shown.elapsed_s >= every_s:
        return True
    return (new.stage, new.accuracy, new.finished) != (shown.stage, shown.accuracy, shown.finished)


def line(snapshot: Snapshot) -> str:
    """Everything in one line, for a log."""
    parts = [f"{clock(snapshot.elapsed_s)}  {snapshot.stage}"]
    if snapshot.detail:
        parts.append(snapshot.detail)
    if snapshot.share is not None:
        parts.append(f"{snapshot.share:.0%}")
    if snapshot.version >= 0:
        parts += [f"step {snapshot.version}/{snapshot.goal.steps}", *measures(snapshot)]
    if any(snapshot.backlog.values()):
        parts.append("backlog " + " ".join(f"{stream} {length}" for stream, length in snapshot.backlog.items()))
    if shares := snapshot.busy_by_role():
        parts.append("busy " + " ".join(f"{role} {share:.0%}" for role, share in shares.items()))
    return "  ".join(parts)
