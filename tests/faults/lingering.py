"""A rule that takes its time over some groups, so that younger ones overtake them.

For: `[reward] parts` beside the rule that counts. Not for: judging anything.
"""

from __future__ import annotations

import time
import zlib

ONE_IN = 8
LINGERS_S = 0.03
"""Per completion: with eight siblings a group is scored several scripted steps later than its neighbours."""


def lingering(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    if zlib.crc32(prompt.encode()) % ONE_IN == 0:
        time.sleep(LINGERS_S)
    return 0.0
