"""A log record as a person reads it: `16:26:07.226  rollout-0  warning  trying again  group=a/0/7 reason=…`.

For: a process on a terminal, and `tidemill logs`. Not for: files, where records are JSON (`telemetry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from structlog.dev import BLUE, BRIGHT, CYAN, DIM, GREEN, MAGENTA, RED, RESET_ALL, YELLOW

ROLE_COLOURS = {
    "feeder": BLUE,
    "rollout": GREEN,
    "reward": MAGENTA,
    "judge": MAGENTA,
    "trainer": YELLOW,
    "rank": YELLOW,
    "scheduler": CYAN,
    "slot": CYAN,
}
LEVEL_COLOURS = {"warning": YELLOW, "error": RED + BRIGHT, "critical": RED + BRIGHT}
PLAIN = {"timestamp", "level", "event", "run", "role", "process", "slot", "exception", "sentence"}
"""Names that have a place of their own, or are told by another."""
WIDTH = 14
"""Of a process's name."""


def in_words(record: Mapping[str, Any], colours: bool) -> str:
    """One record as a line, with its traceback below it where it has one."""
    paint = painted if colours else unpainted
    level, process = str(record.get("level", "info")), str(record.get("process", ""))
    parts = [
        paint(clock(str(record.get("timestamp", ""))), DIM),
        paint(process.ljust(WIDTH), ROLE_COLOURS.get(str(record.get("role", "")), "")),
        "" if level in ("info", "debug") else paint(level, LEVEL_COLOURS.get(level, "")),
        paint(what_happened(record), BRIGHT),
        *(f"{paint(f'{name}=', DIM)}{shown(value)}" for name, value in record.items() if name not in PLAIN),
    ]
    line = "  ".join(part for part in parts[:4] if part) + "".join(f"  {part}" for part in parts[4:])
    return f"{line}\n{record['exception']}" if record.get("exception") else line


def what_happened(record: Mapping[str, Any]) -> str:
    """The event; what was said, where the event is only that something was."""
    return str(record.get("sentence") or record.get("event", ""))


def clock(timestamp: str) -> str:
    """The time of day here, to the millisecond; as wide where there is none."""
    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S.%f")[:12]
    except ValueError:
        return " " * 12


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return repr(value) if isinstance(value, str) and (" " in value or not value) else str(value)


def painted(text: str, colour: str) -> str:
    return f"{colour}{text}{RESET_ALL}" if colour else text


def unpainted(text: str, _colour: str) -> str:
    return text
