"""`python -m consumers.rewards.rule_worker FD`: scores groups for a `RuleProcess`, in a process that may be killed.

For: running rules that may hang, crash or leak. Not for: deadlines (the parent's), weights, or what becomes of a group.

Speaks length-prefixed MessagePack on standard input and output: first the parts, answered by "" or by what is wrong
with them; then chunks of groups, each answered by one answer per group. A rule's own prints go to standard error, or
they would tear the conversation. Where it is in a chunk, and since when, it writes into memory shared through file
descriptor FD: that is all that can be known about it when it hangs.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import mmap
import os
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, BinaryIO

import msgpack

HEAD = struct.Struct("<I")
"""Bytes of the message that follows."""

MARK = struct.Struct("<IId")
"""Group in the chunk, part, and when it was begun, by the system's monotonic clock."""

LARGEST = 3.4e38
"""Rewards travel as float32."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a reward: a rule and its options."""

    name: str
    path: str
    """`module:attribute`"""
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A group as rules see it."""

    prompt: str
    answer: str
    meta: Mapping[str, Any]
    completions: Sequence[str]


Answer = list[list[float]] | str
"""Per part the rewards of the siblings, or what went wrong in which rule."""

Scoring = tuple[str, Callable[..., Any]]
"""A part's name and its rule, options bound."""


def load(part: Part) -> Scoring:
    """Raises whatever is wrong with the path, the options, or the rule's signature."""
    module, _, attribute = part.path.partition(":")
    rule: Any = getattr(importlib.import_module(module), attribute)
    options = part.options
    if inspect.isclass(rule) and hasattr(rule, "score") and "__call__" not in dir(rule):
        raise TypeError('it is a judge and no rule: write on = "slot" beside its name')
    if inspect.isclass(rule):
        rule, options = rule(**options), {}
    try:
        inspect.signature(rule).bind(prompt="", completion="", answer="", meta={}, **options)
    except TypeError as error:
        raise TypeError(f"{error}; it is called as rule(*, prompt, completion, answer, meta, **options)") from None
    return part.name, functools.partial(rule, **options)


def score(question: Question, parts: Sequence[Scoring], begin: Callable[[int], None]) -> Answer:
    """All parts of one group; `begin` is told each part before it is scored."""
    found: list[list[float]] = []
    for place, (name, rule) in enumerate(parts):
        begin(place)
        try:
            found.append([reward(rule, question, completion) for completion in question.completions])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the rule's, and told to the parent
            return f"rule {name}: {type(error).__name__}: {error}{where(error)}"
    return found


def reward(rule: Callable[..., Any], question: Question, completion: str) -> float:
    """Raises TypeError and ValueError for an answer that is no finite number."""
    value = rule(prompt=question.prompt, completion=completion, answer=question.answer, meta=question.meta)
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"a reward must be a number, not {value!r} (for completion {completion[:40]!r})")
    number = float(value)
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise ValueError(f"a reward must be a finite float32, not {number!r} (for completion {completion[:40]!r})")
    return number


def where(error: BaseException) -> str:
    """File and line where a rule raised; nothing when it was raised here."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and frames[-1].filename != __file__ else ""


def receive(stream: BinaryIO) -> Any:
    """The next message; None when the parent is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    return msgpack.unpackb(stream.read(HEAD.unpack(head)[0]), strict_map_key=False, unicode_errors="surrogatepass")


def packed(message: Any) -> bytes:
    """With its length in front."""
    body = msgpack.packb(message, unicode_errors="surrogatepass") or b""
    return HEAD.pack(len(body)) + body


def parts_message(parts: Sequence[Part]) -> bytes:
    return packed([astuple(part) for part in parts])


def chunk_message(chunk: Sequence[Question]) -> bytes:
    return packed([(each.prompt, each.answer, each.meta, each.completions) for each in chunk])


def scored(chunk: list[list[Any]], parts: Sequence[Scoring], marks: mmap.mmap) -> list[Answer]:
    """Answers to a chunk, in order; each group and part is marked as it is begun."""

    def begin(group: int, part: int) -> None:
        MARK.pack_into(marks, 0, group, part, time.monotonic() if part == 0 else MARK.unpack_from(marks)[2])

    return [score(Question(*each), parts, functools.partial(begin, place)) for place, each in enumerate(chunk)]


def main() -> None:
    """consumes: chunks on standard input   produces: answers   waits for: a chunk   unblocked by: the pool, or its
    end"""
    marks = mmap.mmap(int(sys.argv[1]), MARK.size)
    answers, questions = os.fdopen(os.dup(1), "wb", buffering=0), sys.stdin.buffer
    os.dup2(2, 1)
    parts: list[Scoring] = []
    for part in receive(questions) or []:
        try:
            parts.append(load(Part(*part)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the rule's, and told to the parent
            answers.write(packed(f"{part[0]}: {type(error).__name__}: {error}"))
            return
    answers.write(packed(""))
    while (chunk := receive(questions)) is not None:
        answers.write(packed(scored(chunk, parts, marks)))


if __name__ == "__main__":
    main()
