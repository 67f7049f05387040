"""What a name in a run file leads to: an entry of a registry, or an extension's dotted path `module:attribute`.

For: loading it, calling it, and holding what it makes against what the seam promises; whatever is wrong with it is one
Misconfigured. Not for: whether a name can lead anywhere, asked before anything starts (`deploy.names`), nor for what an
extension raises by itself: that comes out as it is, with its own traceback.
"""

from __future__ import annotations

import difflib
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from broker.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Named:
    """A name and where it stands.

    >>> make = Named('[algorithm] name = "grpo"', "grpo").load(ALGORITHMS)
    """

    setting: str
    """As a person wrote it, for messages."""
    name: str

    def load(self, registry: Mapping[str, str]) -> Callable[..., Any]:
        """What the name leads to; `make` where a path names no attribute. Raises Misconfigured."""
        module, _, attribute = registry.get(self.name, self.name).partition(":")
        try:
            return getattr(import_module(module), attribute or "make")
        except Exception as error:  # whatever a module raises when it is imported is the module's
            near = difflib.get_close_matches(self.name, registry, n=1)
            meant = f'did you mean "{near[0]}"? ' if near else ""
            known = f"{meant}known: {', '.join(registry)}, or module:attribute"
            raise self.wrong(f"{in_words(error)}{where(error)}", known) from error

    def made(self, registry: Mapping[str, str], promise: type, /, *args: Any, **kwargs: Any) -> Any:
        """What the name's factory makes, if it has all that `promise` has. Raises Misconfigured."""
        return self.kept(self.called(registry, *args, **kwargs), promise)

    def called(self, registry: Mapping[str, str], /, *args: Any, **kwargs: Any) -> Any:
        """What the name's factory makes. Raises Misconfigured for one that does not take these arguments."""
        make = self.load(registry)
        try:
            inspect.signature(make).bind(*args, **kwargs)
        except TypeError as error:
            given = ", ".join([*(["…"] if args else []), *(f"{key}=…" for key in kwargs)])
            raise self.wrong(f"it cannot be called as make({given}): {error}", "correct its parameters") from None
        return make(*args, **kwargs)

    def kept(self, thing: Any, promise: type) -> Any:
        """`thing`, if it keeps the promise. Raises Misconfigured naming what it lacks."""
        lacking = [member for member in members(promise) if not hasattr(thing, member)]
        if lacking:
            made = f"it made a {type(thing).__name__} without {', '.join(lacking)}"
            raise self.wrong(made, f"write what {promise.__module__}.{promise.__name__} promises")
        return thing

    def wrong(self, problem: str, mend: str) -> Misconfigured:
        return Misconfigured(f"{self.setting}: {problem}; nothing was started; {mend}")


def members(promise: type) -> list[str]:
    """Attributes and methods of a Protocol, in the order they are written."""
    return [name for name in [*promise.__annotations__, *vars(promise)] if not name.startswith("_")]


def in_words(error: Exception) -> str:
    plain = isinstance(error, ImportError | AttributeError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def where(error: Exception) -> str:
    """File and line of a module that failed while it was imported; nothing when it was not found."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    inside = frame.filename != __file__ and "importlib" not in frame.filename
    return f" ({frame.filename}:{frame.lineno})" if inside else ""
