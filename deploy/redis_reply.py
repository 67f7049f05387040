"""A server's reply as a person reads it: like `redis-cli -3`, with tensors as numbers and pairs as pairs.

For: text of any reply. Not for: asking for it (`redis_command`). Where redis-cli prints bytes, the field's name says
what they are (`logprobs:f4`, `spans:i4:8x4`, `body`); a stream entry's fields are written as `name => value`, as the
parts of a map are; what a hash holds comes in the order of its names, since a server keeps none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from broker.errors import Poison
from broker.fields import unpack
from broker.tensors import as_array

ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
TENSOR = re.compile(r"(?P<name>.+):(?P<code>i4|f4|u1)(:(?P<shape>\d+(x\d+)*))?")
ENTRY_ID = re.compile(rb"\d+-\d+")
PACKED = "body"
LONGEST = 64
"""Numbers of a tensor that are shown whole; of a longer one both ends."""


def shown_reply(words: Sequence[str], reply: Any) -> str:
    """The reply to the command `words`."""
    if words[0].upper() == "HGETALL" and isinstance(reply, dict):
        return shown(dict(sorted(reply.items(), key=lambda item: by_name(item[0]))))
    if words[0].upper() == "HGET" and isinstance(reply, bytes):
        return shown_value(words[-1].encode(), reply, "")
    return shown(reply)


def by_name(name: bytes) -> list[tuple[int, bytes]]:
    """Sorts `r2.text` before `r10.text`."""
    return [(int(part), b"") if part.isdigit() else (-1, part) for part in re.split(rb"(\d+)", name)]


def shown(reply: Any, indent: str = "") -> str:
    """One value, whatever it is; every line after the first begins with `indent`."""
    if reply is None:
        return "(nil)"
    if isinstance(reply, bool):
        return f"({str(reply).lower()})"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, float):
        return f"(double) {reply:.17g}"
    if isinstance(reply, bytes):
        return quoted(reply)
    if isinstance(reply, Mapping):
        return shown_pairs(list(reply.items()), indent) if reply else "(empty hash)"
    if isinstance(reply, list | set | frozenset):
        return shown_list(list(reply), indent) if reply else "(empty array)"
    return str(reply)


def shown_list(items: list[Any], indent: str) -> str:
    """Numbered, each level indented below its number."""
    if is_entry(items):
        fields = list(zip(items[1][::2], items[1][1::2], strict=True))
        return f"{shown(items[0])}\n{indent}{shown_pairs(fields, indent)}"
    width = len(str(len(items)))
    lines: list[str] = []
    for number, item in enumerate(items, 1):
        label = f"{number:>{width}}) "
        lines.append(label + shown(item, indent + " " * len(label)))
    return f"\n{indent}".join(lines)


def is_entry(items: list[Any]) -> bool:
    """Whether this is what streams hold: an id and a flat list of names and values."""
    if len(items) != 2 or not isinstance(items[0], bytes) or not isinstance(items[1], list):
        return False
    flat = all(isinstance(each, bytes) for each in items[1])
    return bool(ENTRY_ID.fullmatch(items[0])) and flat and len(items[1]) > 0 and len(items[1]) % 2 == 0


def shown_pairs(pairs: Sequence[tuple[Any, Any]], indent: str) -> str:
    """Numbered names, each with its value behind an arrow."""
    width = len(str(len(pairs)))
    lines: list[str] = []
    for number, (name, value) in enumerate(pairs, 1):
        label = f"{number:>{width}}# {shown(name)} => "
        lines.append(label + shown_value(name, value, indent + " " * len(label)))
    return f"\n{indent}".join(lines)


def shown_value(name: Any, value: Any, indent: str) -> str:
    """The value of a field; bytes are read as its name says, and stay as they are when they are something else."""
    if not isinstance(name, bytes) or not isinstance(value, bytes):
        return shown(value, indent)
    label = name.decode(errors="replace")
    try:
        if found := TENSOR.fullmatch(label):
            return numbers(found["name"], found["code"], value, found["shape"] or "")
        if label == PACKED:
            return json.dumps(unpack(value), ensure_ascii=False, default=repr)
    except (Poison, ValueError):
        pass
    return quoted(value)


def numbers(name: str, code: str, value: bytes, shape: str) -> str:
    """A tensor on one line, the middle of a long one left out. Raises Poison when the bytes do not fit."""
    array = as_array(name, code, value, tuple(map(int, shape.split("x"))) if shape else ())
    written = np.array2string(
        array,
        separator=", ",
        threshold=LONGEST,
        edgeitems=4,
        max_line_width=10**9,
        formatter={"float_kind": lambda number: f"{number:.4g}", "int_kind": str},
    )
    return " ".join(written.split())


def quoted(text: bytes) -> str:
    """Readable text in quotes; what is no text byte by byte."""
    try:
        return '"' + "".join(map(escaped, text.decode())) + '"'
    except UnicodeDecodeError:
        return '"' + "".join(escaped(chr(byte)) if byte < 128 else f"\\x{byte:02x}" for byte in text) + '"'


def escaped(character: str) -> str:
    plain = character if character.isprintable() else f"\\x{ord(character):02x}"
    return ESCAPES.get(character, plain)
