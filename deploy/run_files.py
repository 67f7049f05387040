"""Finding a run file, reading it, and laying `section.key=value` over it.

For: from what a person typed to nested plain values. Not for: what the values mean (`run_settings`, `cross_checks`).
"""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured

SHIPPED = Path(__file__).parent / "runs"

Values = dict[str, Any]
"""Section → key → value, as TOML gives it."""

BARE_WORD = re.compile(r"[\w./:@~+-]+")
"""A string nobody should have to quote twice (`rollout.engine=torch`)."""


def shipped_runs() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def find_run_file(name: str) -> Path:
    """The file a person means: a path, or the name of a shipped run. Raises Misconfigured with the nearest name."""
    path = Path(name)
    if path.is_file():
        return path
    if (SHIPPED / f"{name}.toml").is_file():
        return SHIPPED / f"{name}.toml"
    near = difflib.get_close_matches(name, shipped_runs(), n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"shipped runs: {', '.join(shipped_runs())}"
    raise Misconfigured(f"there is no run file {name!r} and no shipped run of that name; nothing was started; {hint}")


def read_run_file(path: Path) -> Values:
    """The file as nested values. Raises Misconfigured with the line."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} is not TOML: {error}; nothing was started; correct that line") from None
    stray = [key for key, value in values.items() if not isinstance(value, dict)]
    if stray:
        raise Misconfigured(
            f"{path}: {stray[0]} = … stands outside any section; nothing was started; put it under one, such as [run]"
        )
    return values


def overlaid(values: Values, overrides: Sequence[str]) -> Values:
    """A copy of `values` with each `section.key=value` in its place. Raises Misconfigured for another form."""
    result = copy.deepcopy(values)
    for override in overrides:
        path, value = parse_override(override)
        place = result
        for part in path[:-1]:
            inner = place.get(part)
            place[part] = place = inner if isinstance(inner, dict) else {}
        place[path[-1]] = value
    return result


def parse_override(text: str) -> tuple[list[str], Any]:
    """`train.lr=1e-4` → (["train", "lr"], 0.0001). The value is TOML; a bare word is a string, `none` is no value."""
    key, equals, raw = text.partition("=")
    path = key.strip().split(".")
    if not equals or len(path) < 2 or not all(re.fullmatch(r"[\w-]+", part) for part in path):
        raise Misconfigured(
            f"{text!r} is not of the form section.key=value (as in train.lr=1e-4); nothing was started; correct it"
        )
    try:
        return path, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError as error:
        if BARE_WORD.fullmatch(raw.strip()):
            return path, None if raw.strip() == "none" else raw.strip()
        raise Misconfigured(
            f"{text!r}: {raw!r} is not a TOML value ({error}); nothing was started; quote strings, as in key='\"a b\"'"
        ) from None
