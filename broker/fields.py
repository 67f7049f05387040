"""Fields of a stream entry or a hash: text, numbers and one MessagePack value, read with errors a person can act on.

For: single fields. Not for: tensors (`tensors`), or which fields a group has (`codec`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, cast, get_args

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from broker.errors import Poison
from broker.messages import Kind

Fields = dict[bytes, bytes]
"""Of a stream entry, or of a hash."""

SCHEMA: Final = "group/1"
"""Changes when fields change their meaning; another one is refused."""

packb = cast("Callable[..., bytes]", msgpack.packb)  # pyright: ignore[reportUnknownMemberType]
unpackb = cast("Callable[..., object]", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

DECIMAL: Final = re.compile(rb"-?[0-9]{1,20}")
"""Twenty digits hold every number of 64 bits; more would only cost time to read."""

SHOWN: Final = 80
"""Most bytes of a wrong value that a message shows."""


def check_schema(fields: Mapping[bytes, bytes]) -> None:
    found = fields.get(b"schema", b"")
    if found != SCHEMA.encode():
        raise Poison(
            f"schema is {found[:SHOWN]!r}, not {SCHEMA!r}; it is not read; let the version that wrote it finish the run"
        )


def to_bytes(value: str) -> bytes:
    """UTF-8; halves of surrogate pairs, which broken data may hold, pass through."""
    return value.encode("utf-8", "surrogatepass")


def text(fields: Mapping[bytes, bytes], name: str, default: str | None = None) -> str:
    value = fields.get(name.encode())
    if value is None:
        return absent(name) if default is None else default
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Poison(f"field {name} is no text ({error}); the group is buried; write it as UTF-8") from None


def whole(fields: Mapping[bytes, bytes], name: str, default: int | None = None) -> int:
    value = fields.get(name.encode())
    if value is None:
        return absent(name) if default is None else default
    if DECIMAL.fullmatch(value) is None:
        raise Poison(
            f"field {name} is {value[:SHOWN]!r}, no whole number of 64 bits; the group is buried; write it in decimals"
        )
    return int(value)


def wholes(fields: Mapping[bytes, bytes], name: str) -> tuple[int, ...]:
    words = fields.get(name.encode(), b"").split()
    for word in words:
        if DECIMAL.fullmatch(word) is None:
            raise Poison(
                f"field {name} holds {word[:SHOWN]!r}; the group is buried; write whole numbers with spaces between"
            )
    return tuple(map(int, words))


def real(fields: Mapping[bytes, bytes], name: str) -> float:
    value = fields.get(name.encode())
    if value is None:
        return absent(name)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Poison(
            f"field {name} is {value[:SHOWN]!r}, no number; the group is buried; write a finite one in decimals"
        )
    return number


def kind_of(fields: Mapping[bytes, bytes]) -> Kind:
    value = text(fields, "kind")
    for known in KINDS:
        if value == known:
            return known
    raise Poison(f"field kind is {value[:SHOWN]!r}; the group is buried; write one of {', '.join(KINDS)}")


def absent(name: str) -> NoReturn:
    raise Poison(
        f"field {name} is absent; the group is buried; whoever writes its other fields must write this one too"
    )


def pack(value: object) -> bytes:
    """MessagePack. Raises Poison for what is not plain nested values."""
    try:
        return packb(value, use_bin_type=True, unicode_errors="surrogatepass")
    except (TypeError, ValueError, OverflowError) as error:
        raise Poison(
            f"{error}; the group is buried; put only text, numbers, lists and maps into a prompt's meta"
        ) from None


def unpack(packed: bytes) -> dict[Any, Any]:
    """A MessagePack map of plain values. Raises Poison for anything else: what claims more than is there, nests deeper
    than `msgpack` follows, uses a list as a key, or carries a type of somebody's own.
    """
    try:
        value = unpackb(packed, raw=False, strict_map_key=False, unicode_errors="surrogatepass", ext_hook=refuse_type)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Poison(
            f"{len(packed)} bytes are no MessagePack ({type(error).__name__}: {error}); they are not read; they were "
            "cut short, or something else wrote them"
        ) from None
    if not isinstance(value, dict):
        raise Poison(f"MessagePack holds {type(value).__name__}, not a map; it is not read; something else wrote it")
    return cast(dict[Any, Any], value)


def refuse_type(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"type {code} of {len(data)} bytes is none of ours")
