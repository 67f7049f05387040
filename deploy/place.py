"""The name under which a process of a cluster reports.

For: whoever joins a fleet, and whoever asks how that process is. Not for: slots, whose workers are given a name, or the
processes of a launcher (`crew`).
"""

from __future__ import annotations

import os
import socket

PLACE_VARIABLE = "TIDEMILL_PLACE"
"""Names this container or host; what a cluster's own manager knows it by."""


def place_of(role: str) -> str:
    """The name it was given, else the role and this host's name."""
    return os.environ.get(PLACE_VARIABLE) or f"{role}-{socket.gethostname()}"
