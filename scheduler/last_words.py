"""What a process wrote before it ended, as a person reads it.

For: log records among its lines become sentences. Not for: finding the lines (`scheduler.controller_process`).
"""

from __future__ import annotations

import json
from typing import Any


def readable(lines: str) -> str:
    """The same lines, each record of a log as its reason, its event where it gives none.

    >>> readable('{"event": "stopped", "kind": "Misconfigured", "reason": "[train] lr = 0: …"}')
    '[train] lr = 0: …'
    """
    return "\n".join(sentence(line) for line in lines.splitlines())


def sentence(line: str) -> str:
    record = record_of(line)
    return line if record is None else str(record.get("reason") or record.get("event") or line)


def record_of(line: str) -> dict[str, Any] | None:
    """A line of a log; None for whatever else stands there."""
    try:
        record = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
