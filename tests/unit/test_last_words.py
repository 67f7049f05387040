"""What a process wrote last is told in sentences."""

from __future__ import annotations

import pytest

from scheduler.last_words import readable


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"kind": "Misconfigured", "reason": "x = 1: too few", "event": "stopped"}', "x = 1: too few"),
        ('{"event": "waiting"}', "waiting"),
        ('{"reason": "first\\nsecond"}\nplain', "first\nsecond\nplain"),
        ("{not a record", "{not a record"),
        ('{"neither": 1}', '{"neither": 1}'),
        ("Traceback\n  File x", "Traceback\n  File x"),
        ("", ""),
    ],
)
def test_records_are_told_by_their_reason_and_everything_else_stays(written: str, told: str) -> None:
    assert readable(written) == told
