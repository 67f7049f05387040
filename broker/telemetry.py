"""What a process says about itself: structured log lines, and the counters of its heartbeat.

For: every process, once, at its start (`configure`), and its loop (`Meter`). Not for: facts about the run, which live
in the broker and in the run folder; nor for logging inside pure modules, which return their reasons instead.

A log line goes to `logs/PROCESS.jsonl` in the run folder as one JSON object, and to standard error: in words on a
terminal, as JSON into a pipe, for whoever collects it there; where that is a file of the run's, only warnings and
worse, for they are what a process is asked for when it has died. `group` and `version` come from whoever bound them
around the work (`structlog.contextvars`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

from broker.log_words import in_words
from broker.measures import HAND_OVER
from broker.messages import Delivery
from broker.metrics import Metrics
from broker.settings import TelemetrySection, log_level, telemetry_section
from broker.shares import Share, Shares

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


@dataclass(slots=True)
class TwoPlaces:
    """The structlog logger underneath: one file, one console."""

    names: dict[str, str]
    """What every line carries."""
    console: TextIO | None
    """None: somebody draws on it."""
    is_terminal: bool
    takes_all: bool
    """The console is a terminal, a pipe, or all there was at first."""
    records: TextIO | None = None

    def msg(self, *, level: str, record: str, sentence: str) -> None:
        if self.records is not None:
            print(record, file=self.records, flush=True)
        if (
            sentence
            and self.console is not None
            and (self.takes_all or self.records is None or LEVELS[level] >= LEVELS["warning"])
        ):
            print(sentence, file=self.console, flush=True)

    debug = info = warning = error = critical = msg

    def keep(self, folder: Path) -> None:
        """From now on lines stand in this run's folder too."""
        self.names["run"] = folder.name
        path = folder / "logs" / f"{self.names['process']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.records is not None:
            self.records.close()
        self.records = path.open("a", encoding="utf-8")


def configure(
    folder: Path | None,
    *,
    process: str,
    role: str,
    slot: str = "",
    console: bool = True,
    settings: TelemetrySection | None = None,
) -> structlog.stdlib.BoundLogger:
    """Set structlog up for this process and return its logger; every line carries the run and the three names.

    `folder` is the run folder; None until a run is joined. `console=False`: somebody else draws on standard error.
    What libraries log goes the same way, warnings and worse. Raises Misconfigured for a level that is none.
    """
    level, terminal = LEVELS[log_level(settings or TelemetrySection())], sys.stderr.isatty()
    places = TwoPlaces(
        names={"run": "", "role": role, "process": process, "slot": slot},
        console=sys.stderr if console else None,
        is_terminal=terminal,
        takes_all=terminal or folder is None or is_pipe(sys.stderr),
    )
    if folder is not None:
        places.keep(folder)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            with_names(places),
            in_both_forms(places),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: places,
        cache_logger_on_first_use=False,
    )
    hear_libraries()
    return structlog.get_logger()


def join(folder: Path, raw: Mapping[str, Any]) -> None:
    """This process, which belongs to no run, works for this one from now on: its lines say so and stand there too."""
    cast("TwoPlaces", structlog.get_config()["logger_factory"]()).keep(folder)
    level = LEVELS[log_level(telemetry_section(raw))]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


def is_pipe(stream: TextIO) -> bool:
    """Whether somebody else reads it as it comes: a collector of logs, another program."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def with_names(places: TwoPlaces) -> structlog.typing.Processor:
    """Add this process's names to every line, from whatever thread or task it comes."""
    return lambda _logger, _method, event: {**{name: said for name, said in places.names.items() if said}, **event}


def in_both_forms(places: TwoPlaces) -> structlog.typing.Processor:
    """The last processor: a JSON record, and what the console gets: nothing of what is `printed` there already."""

    def render(_logger: WrappedLogger, _method: str, event: EventDict) -> dict[str, Any]:
        printed = event.pop("printed", False)
        record = json.dumps(dict(event), default=str)
        sentence = "" if printed else in_words(event, colours=True) if places.is_terminal else record
        return {"level": event["level"], "record": record, "sentence": sentence}

    return render


class FromLibraries(logging.Handler):
    """What libraries log becomes a line like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = max((number for number in LEVELS.values() if number <= record.levelno), default=LEVELS["debug"])
        told = {"exc_info": record.exc_info} if record.exc_info else {}
        try:
            structlog.get_logger().log(level, record.getMessage(), logger=record.name, **told)
        except Exception:  # noqa: BLE001  a library that formats its words wrongly must not end by them
            self.handleError(record)


def hear_libraries() -> None:
    """Warnings and worse of every library come as our lines. Call it again after loading libraries that write past it:
    their own handlers would say the same once more, in another form.
    """
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    for logger in [root, *(one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger))]:
        for handler in list(logger.handlers):
            if type(handler) in (logging.StreamHandler, FromLibraries):
                logger.removeHandler(handler)
                logger.propagate = True
    root.addHandler(FromLibraries())
    logging.captureWarnings(capture=True)


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
    synced_s: float | None = None
    """From hearing of the newest version that was served up to serving it; None where none is."""
    held: int = 0
    """Groups in hand: unsettled work."""
    stage: str = "starting"
    """In a word or two, what it does or waits for now."""
    clock: Callable[[], float] = time.monotonic
    metrics: Metrics = field(default_factory=Metrics)
    """What is counted beside: for Prometheus, not for the heartbeat."""
    loaded_at: float | None = field(default=None, init=False)
    shares: Shares = field(init=False)
    born: float = field(init=False)
    busy_before: float = field(default=0.0, init=False)
    busy_since: float = field(default=0.0, init=False)
    depth: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.born, self.shares = self.clock(), Shares(self.clock)

    @property
    def ready(self) -> bool:
        """Loaded: from now on it takes whatever work there is."""
        return self.loaded_at is not None

    def loaded(self) -> None:
        """It is ready."""
        if self.loaded_at is None:
            self.loaded_at = self.clock()

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

    @property
    def loading_s(self) -> float:
        """From its start until it was ready."""
        return (self.clock() if self.loaded_at is None else self.loaded_at) - self.born

    def taken_up(self, delivery: Delivery, now: float) -> None:
        """Count how long the entry lay in its stream; `now` in seconds since 1970, so hosts' clocks should agree."""
        if delivery.added_at is not None:
            self.metrics.observe(HAND_OVER, max(0.0, now - delivery.added_at), stream=delivery.stream)

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
            **({} if self.synced_s is None else {"synced_s": round(self.synced_s, 3)}),
            "held": self.held,
            "ready": self.ready,
            "stage": self.stage,
        }
