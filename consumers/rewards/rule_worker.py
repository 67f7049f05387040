"""`python -m consumers.rewards.rule_worker`: scores groups for a `RulePool`, in a process that may be killed.

For: running rules that may hang, crash or leak. Not for: deadlines (the pool's). Speaks length-prefixed MessagePack on
standard input and output; a rule's own prints go to standard error, or they would tear the conversation.
"""

from __future__ import annotations

import importlib
import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import msgpack

Part = tuple[str, Callable[..., float], dict[str, Any]]


def load(parts: list[list[Any]]) -> list[Part]:
    """Rules by dotted path `module:function`."""
    loaded: list[Part] = []
    for name, path, options in parts:
        module, _, attribute = path.partition(":")
        loaded.append((name, getattr(importlib.import_module(module), attribute), options))
    return loaded


def score(parts: list[Part], group: dict[str, Any]) -> dict[str, Any]:
    """Rewards per part, or what went wrong in which rule."""
    found: dict[str, list[float]] = {}
    for name, rule, options in parts:
        try:
            found[name] = [
                number(rule(prompt=group["prompt"], completion=text, answer=group["answer"], meta=group["meta"], **options))
                for text in group["texts"]
            ]
        except Exception as error:
            return {"id": group["id"], "error": f"rule {name}: {type(error).__name__}: {error}"}
    return {"id": group["id"], "parts": found}


def number(value: Any) -> float:
    """Raises ValueError for anything that is not a finite number."""
    reward = float(value)
    if not math.isfinite(reward):
        raise ValueError(f"a reward must be a finite number, not {value!r}")
    return reward


def receive(stream: BinaryIO) -> Any:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return msgpack.unpackb(stream.read(struct.unpack("<I", head)[0]))


def send(stream: BinaryIO, message: Any) -> None:
    packed = msgpack.packb(message) or b""
    stream.write(struct.pack("<I", len(packed)) + packed)
    stream.flush()


def main() -> None:
    """consumes: groups on standard input   produces: scores   waits for: a group   unblocked by: the pool, or its end"""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        parts = load(receive(sys.stdin.buffer))
    except Exception as error:
        send(answers, {"id": "", "error": f"{type(error).__name__}: {error}"})
        return
    send(answers, {"id": "", "ready": True})
    while (group := receive(sys.stdin.buffer)) is not None:
        send(answers, score(parts, group))


if __name__ == "__main__":
    main()
