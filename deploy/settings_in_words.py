"""A key's values and its default as a person writes them in a run file; pure.

For: the reference of settings. Not for: which settings there are, and what they mean (`settings_reference`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

NAMES: Mapping[Any, str] = {bool: "true, false", int: "whole number", float: "number", str: "text"}
LONGEST_PATTERN = 40


def values_in_words(field: FieldInfo) -> str:
    """`whole number ≥ 1`, `"wait", "keep"`, `list of texts`, `number > 0 or none`, …"""
    kind = field.annotation
    others = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
    words = " or ".join(kind_in_words(one) for one in others)
    if limited := ", ".join(limits(field.metadata)):
        words = f"{words} {limited}"
    return words if others == [kind] else f"{words} or none"


def kind_in_words(kind: Any) -> str:
    """A type as a person says it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in NAMES:
        return NAMES[kind]
    if origin is Literal:
        return ", ".join(json.dumps(one) for one in inner)
    if origin in (Union, UnionType):
        return " or ".join(kind_in_words(one) for one in inner)
    if origin is list:
        return f"list of {kind_in_words(inner[0])}s"
    if origin is tuple:
        return f"[{', '.join(kind_in_words(one) for one in inner)}]"
    return "table"


def limits(metadata: Sequence[Any]) -> Iterator[str]:
    for limit in metadata:
        match limit:
            case Ge():
                yield f"≥ {limit.ge:g}"
            case Gt():
                yield f"> {limit.gt:g}"
            case Le():
                yield f"≤ {limit.le:g}"
            case Lt():
                yield f"< {limit.lt:g}"
            case MinLen():
                yield f"({limit.min_length} or more)"
            case _:
                pattern = getattr(limit, "pattern", None)
                if pattern and len(pattern) <= LONGEST_PATTERN:
                    yield f"like `{pattern}`"


def default_in_words(field: FieldInfo) -> str:
    """As in a run file; empty for a nested section, whose keys have their own."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if isinstance(value, BaseModel) else as_toml(value)


def as_toml(value: Any) -> str:
    """`none` for nothing, as `section.key=none` says it."""
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return as_toml(value.model_dump(exclude_defaults=True))
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {as_toml(one)}" for key, one in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
