"""A reward that needs no model and no answer: a fixed function of the text, so that runs can be compared exactly."""

from __future__ import annotations

import zlib


def scripted(*, prompt: str, completion: str, answer: str, meta: object) -> float:
    return float(zlib.crc32(f"{prompt}|{completion}".encode()) % 2)
