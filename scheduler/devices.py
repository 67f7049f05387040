"""What a slot owns: GPUs or cores, fixed for its life; and which GPUs this machine has to give.

For: supervisors, and whoever shares a machine's GPUs out to slots. Not for: sharing cores out (`deploy.cores`).
Counting GPUs loads no library and makes no CUDA context: a launcher that held one would take memory from every slot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from broker.errors import Misconfigured
from scheduler.controller_process import thread_environment

log = structlog.get_logger()

VISIBLE = "CUDA_VISIBLE_DEVICES"
ANSWER_S = 20.0
"""Longest that `nvidia-smi` may take: without the persistence daemon it wakes every GPU first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What the slot owns, fixed for its life."""

    gpus: str = ""
    """Its `CUDA_VISIBLE_DEVICES`; empty on a machine without."""
    cores: tuple[int, ...] = ()
    """Where its controllers must stay; empty for anywhere."""

    def environment(self) -> dict[str, str]:
        gpus = {VISIBLE: self.gpus} if self.gpus else {}
        return {**thread_environment(max(1, len(self.cores))), **gpus}


def cores_named(text: str, usable: Collection[int]) -> tuple[int, ...]:
    """The cores of a list such as `2,3`. Raises Misconfigured with those that may be named."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or int(word) not in usable]
    if wrong:
        known = ",".join(map(str, sorted(usable)))
        raise Misconfigured(f"{', '.join(wrong)}: no core of this machine; nothing was started; cores: {known}")
    return tuple(map(int, words))


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the GPUs that processes here may use: what `CUDA_VISIBLE_DEVICES` says, else all there are.
    Raises Misconfigured when it names one that is not there.
    """
    there = [str(number) for number in range(gpus_of_the_machine())]
    if VISIBLE not in environment:
        return tuple(there)
    named = [name.strip() for name in environment[VISIBLE].split(",") if name.strip() and name.strip() != "-1"]
    wrong = [name for name in named if name.isdecimal() and name not in there]
    if there and wrong:
        raise Misconfigured(
            f"{VISIBLE}={environment[VISIBLE]}: this machine has no GPU {', '.join(wrong)}; nothing was started; "
            f"GPUs: {','.join(there)}"
        )
    return tuple(named) if there else ()


def gpus_of_the_machine() -> int:
    """How many GPUs there are, by `nvidia-smi`, which a container limits too; without it by the device files."""
    program = shutil.which("nvidia-smi")
    if program:
        try:
            said = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=ANSWER_S, check=True).stdout
        except (subprocess.SubprocessError, OSError) as error:
            log.warning("nvidia-smi does not answer; GPUs are counted by their device files", reason=str(error))
        else:
            return sum(line.startswith("GPU ") for line in said.splitlines())
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def shared_out(gpus: Sequence[str], slots: int) -> list[str]:
    """`CUDA_VISIBLE_DEVICES` of each slot: neighbours together, the same number for all, a remainder unused.

    >>> shared_out(["0", "1", "2", "3", "4"], 2)
    ['0,1', '2,3']
    """
    each = len(gpus) // slots if slots else 0
    return [",".join(gpus[slot * each : (slot + 1) * each]) for slot in range(slots)]


def usable_cores() -> set[int]:
    """Cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
