"""Small files that others read while they are written again.

For: settings, looks and reports of a run, and what a health check remembers. Not for: files that grow (`records`).
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Make `text` what stands there, at once: a reader finds all of the old text or all of the new. Raises OSError."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    with draft.open("x", encoding="utf-8") as file:  # a link that somebody laid there is not followed
        file.write(text)
    draft.replace(path)
