"""What a process says about itself: structured log lines, and the counters of its heartbeat.

For: every process, once, at its start (`configure`), and its loop (`Meter`). Not for: facts about the run, which live
in the broker and in the run folder; nor for logging inside pure modules, which return their reasons instead.

A log line goes to `logs/PROCESS.jsonl` in the run folder as one JSON object, and to standard error: all of them in
words on a terminal, else only warnings and worse.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from broker.shares import Share, Shares

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
SILENT = 60


class TwoPlaces:
    """The structlog logger underneath: one file, one console."""

    def __init__(self, records: TextIO | None, console: TextIO, console_level: int) -> None:
        self.records = records
        self.console = console
        self.console_level = console_level

    def msg(self, *, level: str, record: str, sentence: str) -> None:
        if self.records is not None:
            print(record, file=self.records, flush=True)
        if LEVELS[level] >= self.console_level:
            print(sentence, file=self.console, flush=True)

    debug = info = warning = error = critical = msg


def configure(
    folder: Path | None, *, process: str, role: str, run: str = "", slot: str = "", console: bool = True
) -> structlog.stdlib.BoundLogger:
    """Set structlog up for this process and return its logger; every line carries the four names.

    `folder` is the run folder; None writes to standard error only (everything, as JSON unless on a terminal).
    `console=False` leaves standard error to whoever draws on it.
    """
    named = {
        name: value for name, value in {"run": run, "role": role, "process": process, "slot": slot}.items() if value
    }
    on_terminal = sys.stderr.isatty()
    records: TextIO | None = None
    if folder is not None:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        records = (folder / "logs" / f"{process}.jsonl").open("a", encoding="utf-8")
    everything = on_terminal or folder is None
    loudness = LEVELS["debug" if everything else "warning"] if console else SILENT
    logger = TwoPlaces(records, sys.stderr, loudness)
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            bound(named),
            in_both_forms(on_terminal),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        logger_factory=lambda *_: logger,
        cache_logger_on_first_use=False,
    )
    return structlog.get_logger()


def bound(names: dict[str, str]) -> structlog.typing.Processor:
    """Add this process's names to every line, from whatever thread or task it comes."""
    return lambda _logger, _method, event: {**names, **event}


def in_both_forms(on_terminal: bool) -> structlog.typing.Processor:
    """The last processor: a JSON record, and what the console gets."""
    words = structlog.dev.ConsoleRenderer(colors=on_terminal)

    def render(logger: WrappedLogger, method: str, event: EventDict) -> dict[str, Any]:
        record = json.dumps(dict(event), default=str)
        sentence = str(words(logger, method, dict(event))) if on_terminal else record
        return {"level": event["level"], "record": record, "sentence": sentence}

    return render


@dataclass(slots=True)
class Meter:
    """Counters of one process, reported by its heartbeat.

    >>> meter = Meter()
    >>> with meter.busy():                   # overlapping blocks count once, so busy never exceeds real time
    ...     work()
    >>> with meter.working() as share:       # busy with a group: several share the time they overlap
    ...     work()
    >>> meter.finished(1, share.seconds)     # only one that ended: what was given back counts nothing
    >>> meter.progress += 1                  # anything that brings the run forward; the watchdog reads it
    >>> await broker.beat(name, {"role": "reward", "pid": os.getpid(), **meter.facts()})
    """

    progress: int = 0
    """Rises with every unit of work finished; never with mere life."""
    items: int = 0
    """Groups finished; one that is given back, to be worked on again, is none."""
    spent_s: float = 0.0
    """What these groups took of the busy seconds, each its share (`shares`)."""
    tokens: int = 0
    version: int = -1
    """Weight version worked with now."""
    held: int = 0
    """Groups in hand: unsettled work."""
    ready: bool = False
    """Loaded: from now on it takes whatever work there is."""
    stage: str = "starting"
    """In a word or two, what it does or waits for now."""
    clock: Callable[[], float] = time.monotonic
    shares: Shares = field(init=False)
    born: float = field(init=False)
    busy_before: float = field(default=0.0, init=False)
    busy_since: float = field(default=0.0, init=False)
    depth: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.born, self.shares = self.clock(), Shares(self.clock)

    @contextlib.contextmanager
    def busy(self) -> Generator[None]:
        """Time inside counts as work; all other time is waiting."""
        if self.depth == 0:
            self.busy_since = self.clock()
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.busy_before += self.clock() - self.busy_since

    @contextlib.contextmanager
    def working(self, groups: int = 1) -> Generator[Share]:
        """Busy with so many groups, which begin and end together."""
        with self.busy(), self.shares.taking(groups) as share:
            yield share

    def finished(self, groups: int, seconds: float) -> None:
        """So many groups are done, and took this share of the time."""
        self.items += groups
        self.spent_s += seconds

    @property
    def busy_s(self) -> float:
        """Seconds of work so far, the running block included."""
        running = self.clock() - self.busy_since if self.depth else 0.0
        return self.busy_before + running

    @property
    def wait_s(self) -> float:
        return self.clock() - self.born - self.busy_s

    def facts(self) -> dict[str, str | int | float]:
        """What a heartbeat carries beside role and pid."""
        return {
            "progress": self.progress,
            "busy_s": round(self.busy_s, 3),
            "wait_s": round(self.wait_s, 3),
            "items": self.items,
            "spent_s": round(self.spent_s, 3),
            "places": self.shares.places,
            "half_at": self.shares.half_at,
            "tokens": self.tokens,
            "version": self.version,
            "held": self.held,
            "ready": self.ready,
            "stage": self.stage,
        }
