"""One tensor, one field: raw little-endian bytes under a name that says dtype and shape.

For: `logprobs:f4` (one axis, its length is the bytes'), `spans:i4:5x4` (more axes). Not for: which tensors a group has
(`codec`). Reading copies nothing, so what is read cannot be written to.

>>> write_tensor("spans", np.zeros((5, 4), np.int32))[0]
b'spans:i4:5x4'
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker.errors import Poison
from broker.fields import to_bytes

DTYPES: Final = {"i4": np.dtype("<i4"), "f4": np.dtype("<f4"), "u1": np.dtype("|u1")}
"""What may travel, by the code in the field's name."""

CODES: Final = {dtype: code for code, dtype in DTYPES.items()}

SIZE: Final = re.compile("[0-9]{1,10}")
"""Of one axis: a body cannot hold more than that."""


def write_tensor(name: str, array: NDArray[Any]) -> tuple[bytes, bytes]:
    """Field and value. Raises Poison for a dtype that does not travel, and for numbers that are none."""
    code = CODES.get(array.dtype)
    if code is None:
        raise Poison(f"{name} has dtype {array.dtype}; the group is buried; send {', '.join(map(str, CODES))}")
    check_finite(name, array)
    shape = "" if array.ndim == 1 else ":" + "x".join(map(str, array.shape))
    return to_bytes(f"{name}:{code}{shape}"), array.tobytes()


def read_tensor(
    fields: Mapping[bytes, bytes], name: str, dtypes: tuple[str, ...], axes: tuple[int, ...] = (1,)
) -> NDArray[Any]:
    """The tensor `name`, of one of these dtype codes and so many axes.

    Raises Poison when it is absent, of another dtype or number of axes, or cut short.
    """
    if 1 in axes:
        for code in dtypes:
            value = fields.get(to_bytes(f"{name}:{code}"))
            if value is not None:
                return as_array(name, code, value)
    field = find(fields, name)
    code, shape = split(field, name, dtypes)
    if (len(shape) or 1) not in axes:
        allowed = " or ".join(map(str, axes))
        raise Poison(f"field {field!r} has {len(shape) or 1} axes; the group is buried; write {name} with {allowed}")
    return as_array(name, code, fields[field], shape)


def as_array(name: str, code: str, value: bytes, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """Bytes as numbers. Raises Poison when their length does not fit dtype and shape, or a number is none."""
    dtype = DTYPES[code]
    if shape and len(value) != math.prod(shape) * dtype.itemsize:
        needs = f"{math.prod(shape) * dtype.itemsize} for {'x'.join(map(str, shape))} of {code}"
        raise Poison(f"{name} is {len(value)} bytes; the group is buried; whoever wrote it must write {needs}")
    if len(value) % dtype.itemsize:
        needs = f"a multiple of {dtype.itemsize} for {code}"
        raise Poison(f"{name} is {len(value)} bytes; the group is buried; whoever wrote it must write {needs}")
    array = np.frombuffer(value, dtype)
    check_finite(name, array)
    try:
        return array.reshape(shape) if shape else array
    except ValueError as error:
        raise Poison(f"{name}: {error}; the group is buried; write a shape that memory could hold") from None


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raises Poison for a number that is none: one of them in a batch would spoil every weight."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise Poison(
            f"{name} holds {array.flat[where]} at {where}; the group is buried; whoever wrote it must write finite "
            "numbers"
        )


def find(fields: Mapping[bytes, bytes], name: str) -> bytes:
    """The field that holds tensor `name`, whatever its dtype. Raises Poison when there is none."""
    prefix = to_bytes(f"{name}:")
    for field in fields:
        if field.startswith(prefix):
            return field
    raise Poison(f"{name} is absent; the group is buried; whoever writes its other fields must write this one too")


def split(field: bytes, name: str, dtypes: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    """Dtype code and shape out of a field's name. Raises Poison for a code that is not allowed and a shape that is
    none.
    """
    code, _, suffix = field[len(to_bytes(name)) + 1 :].decode(errors="replace").partition(":")
    sizes = suffix.split("x") if suffix else []
    if code not in dtypes:
        raise Poison(
            f"field {field!r}: unknown dtype {code!r}; the group is buried; write {name} as {', '.join(dtypes)}"
        )
    if not all(SIZE.fullmatch(size) for size in sizes):
        raise Poison(f"field {field!r}: {suffix!r} is no shape; the group is buried; join sizes by x, such as 5x4")
    return code, tuple(map(int, sizes))
