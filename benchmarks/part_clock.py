"""How long named functions of the product take inside a run of it: the functions themselves stay as they are.

For: taking a path apart whose parts call each other. Not for: profiles; parts of a microsecond.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any


class PartClock:
    """Seconds spent in each part since `taken`, calls added up.

    >>> clock = PartClock()
    >>> clock.over(publication, "file_digest", "digest")     # a module's function, or a class's method
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began: dict[str, float] = {}
        """When each part was last begun, by the monotonic clock: the same in every process of a machine."""

    def over(self, owner: Any, name: str, part: str) -> None:
        """From now on count the time in `owner.name` as `part`'s."""
        setattr(owner, name, self.timed(getattr(owner, name), part))

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return function(*args, **named)
            finally:
                self.note(part, began)

        @functools.wraps(function)
        async def awaited(*args: Any, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return await function(*args, **named)
            finally:
                self.note(part, began)

        return awaited if inspect.iscoroutinefunction(function) else called

    def note(self, part: str, began: float) -> None:
        self.began[part] = began
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began

    def taken(self) -> dict[str, float]:
        """Seconds by part; counting begins anew."""
        found, self.seconds = self.seconds, {}
        return found
