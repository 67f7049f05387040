"""What processes and slots say of themselves, as it lies on the server: JSON with the server's time in `at`.

For: reading reports, from whoever wrote them. Not for: what they mean (`standing`, `scheduler.lookout`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

SILENT_S: Final = 10.0
"""Everybody reports once a second; who has not for so long is frozen or gone."""
SERVER_FULL: Final = "the server is full"
"""Stage of a feeder whose groups are refused for want of memory."""
TOO_MANY_DEAD: Final = "too many groups are buried"
"""Stage of a feeder whose groups are refused until somebody replays or drops some of them."""


def aged(reports: Mapping[str, str], now: float) -> dict[str, dict[str, Any]]:
    """Reports with their age, seconds, beside what they say; what is no report of ours is left out."""
    said = {name: facts for name, report in reports.items() if (facts := facts_of(report))}
    return {name: {**facts, "age_s": now - facts["at"]} for name, facts in said.items()}


def facts_of(report: str) -> dict[str, Any] | None:
    """None for what is not JSON, no map, or without a time."""
    try:
        facts: object = json.loads(report)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict):
        return None
    named = cast("dict[str, Any]", facts)
    return named if isinstance(named.get("at"), int | float) else None
