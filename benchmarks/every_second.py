"""A look at something, once a second, while a block runs.

For: watching a run from outside (`processor_watch`, `role_watch`). Not for: what is looked at.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

EVERY_S = 1.0


class EverySecond:
    """Calls `look` once a second, from a thread, until the block ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.thread.join()

    def watch(self) -> None:
        """consumes: time   produces: looks   waits for: the next second, the end   unblocked by: either"""
        while not self.over.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        raise NotImplementedError
