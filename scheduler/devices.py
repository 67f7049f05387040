"""What a slot owns: GPUs or cores, fixed for its life, and what a process on them is told.

For: supervisors. Not for: sharing a machine out (`deploy.cores`).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.controller_process import thread_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What the slot owns, fixed for its life."""

    gpus: str = ""
    """Its `CUDA_VISIBLE_DEVICES`; empty on a machine without."""
    cores: tuple[int, ...] = ()
    """Where its controllers must stay; empty for anywhere."""

    def environment(self) -> dict[str, str]:
        gpus = {"CUDA_VISIBLE_DEVICES": self.gpus} if self.gpus else {}
        return {**thread_environment(max(1, len(self.cores))), **gpus}
