"""Fields of a stream entry or a hash: text, numbers and one MessagePack value, read with errors a person can act on.

For: single fields. Not for: tensors (`tensors`), or which fields a group has (`codec`).
"""

from __future__ import annotations

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


def check_schema(fields: Mapping[bytes, bytes]) -> None:
    found = fields.get(b"schema", b"")
    if found != SCHEMA.encode():
        raise Poison(
            f"schema is {found!r}, not {SCHEMA!r}; it is not read; let the version that wrote it finish the run"
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
    try:
        return int(value)
    except ValueError:
        raise Poison(f"field {name} is {value!r}, no whole number; the group is buried; write it in decimals") from None


def wholes(fields: Mapping[bytes, bytes], name: str) -> tuple[int, ...]:
    value = fields.get(name.encode(), b"")
    try:
        return tuple(map(int, value.split()))
    except ValueError:
        raise Poison(
            f"field {name} is {value!r}; the group is buried; write whole numbers with spaces between"
        ) from None


def real(fields: Mapping[bytes, bytes], name: str) -> float:
    value = fields.get(name.encode())
    if value is None:
        return absent(name)
    try:
        return float(value)
    except ValueError:
        raise Poison(f"field {name} is {value!r}, no number; the group is buried; write it in decimals") from None


def kind_of(fields: Mapping[bytes, bytes]) -> Kind:
    value = text(fields, "kind")
    for known in KINDS:
        if value == known:
            return known
    raise Poison(f"field kind is {value!r}; the group is buried; write one of {', '.join(KINDS)}")


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
    """A MessagePack map. Raises Poison for anything else."""
    try:
        value = unpackb(packed, raw=False, strict_map_key=False, unicode_errors="surrogatepass")
    except ValueError as error:
        raise Poison(
            f"{len(packed)} bytes are no MessagePack ({error}); they are not read; they were cut short"
        ) from None
    if not isinstance(value, dict):
        raise Poison(f"MessagePack holds {type(value).__name__}, not a map; it is not read; something else wrote it")
    return cast(dict[Any, Any], value)
