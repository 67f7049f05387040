"""How the machine's cores are shared among the processes of a run.

For: reading what this process may use (affinity, cgroup) and giving each process its cores and as many threads. Not
for: GPU slots (`scheduler`). Threads beyond cores are worse than wasteful: two processes with two spinning OpenMP
threads each on two cores ran 6 to 20 times slower than with one, so nobody ever gets more threads than cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What the machine lets this process use."""

    cores: tuple[int, ...]
    """Core numbers of the affinity mask."""
    quota: float | None = None
    """Cores' worth of time the cgroup allows; None without a limit."""

    @property
    def count(self) -> int:
        """Whole cores' worth, at least one."""
        return len(self.cores) if self.quota is None else max(1, min(len(self.cores), int(self.quota)))

    @property
    def may_pin(self) -> bool:
        """Not under a quota below the mask: neighbours share our core numbers, all would pile onto the same few."""
        return self.quota is None or self.quota >= len(self.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One process's part."""

    threads: int
    cores: tuple[int, ...] = ()
    """Where it must stay; empty for anywhere."""
    ranks: int = 1
    """Processes it is spread over: each has so many threads, all have the cores together."""
    gpus: str = ""
    """Its `CUDA_VISIBLE_DEVICES`; empty: none of its own."""

    def __str__(self) -> str:
        where = (
            f"on core{'s' if len(self.cores) > 1 else ''} {','.join(map(str, self.cores))}"
            if self.cores
            else "anywhere"
        )
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        gpus = f", GPU {self.gpus}" if self.gpus else ""
        return (f"{self.ranks} ranks of {threads} {where}" if self.ranks > 1 else f"{threads} {where}") + gpus


LIGHT = Share(threads=1)
"""Feeder, rule rewards, server: little work, anywhere."""


def budget(usable: Usable, heavy: Sequence[str], *, ranks: int = 1, pin: bool = True) -> dict[str, Share]:
    """Shares of the heavy processes, the trainer first; all others are `LIGHT`.

    The trainer gets half (rounded up) of what is shared out, in equal parts for its ranks, the producers the rest; from
    four cores on, one is left to the light processes. With fewer cores than heavy processes everybody has one thread
    and the kernel shares.

    >>> {name: str(share) for name, share in budget(Usable(cores=(0, 1)), ["trainer-0", "rollout-0"]).items()}
    {'trainer-0': '1 thread on core 0', 'rollout-0': '1 thread on core 1'}
    """
    free = usable.count - (1 if usable.count >= 4 else 0)
    producers = len(heavy) - 1
    if free < ranks + producers or not heavy:
        return {name: Share(threads=1, ranks=ranks if name == heavy[0] else 1) for name in heavy}
    half = free if producers == 0 else min((free + 1) // 2, free - producers)
    each = max(1, half // ranks)
    rest = free - each * ranks
    shares = [Share(threads=each, ranks=ranks)]
    shares += [Share(threads=(rest + i) // producers) for i in range(producers)]
    return place(usable, dict(zip(heavy, shares, strict=True)), pin=pin and usable.may_pin)


def place(usable: Usable, shares: dict[str, Share], *, pin: bool) -> dict[str, Share]:
    """Give core numbers to shares, first come first placed."""
    placed: dict[str, Share] = {}
    start = 0
    for name, share in shares.items():
        end = start + share.threads * share.ranks
        placed[name] = replace(share, cores=usable.cores[start:end] if pin else ())
        start = end
    return placed


def usable_here() -> Usable:
    """What this process may use now."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return Usable(cores=tuple(cores), quota=read_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))


def read_quota(root: Path, membership: Path) -> float | None:
    """The tightest CPU limit of our cgroup and those above it, version 1 or 2; None without one."""
    limits: list[float] = []
    lines = membership.read_text().splitlines() if membership.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = next((root / name for name in (controllers, "cpu") if controllers and (root / name).is_dir()), root)
        inside = top / path.lstrip("/")
        folders = [inside, *inside.parents]
        limits += [
            limit for folder in folders if folder.is_relative_to(top) and (limit := limit_of(folder)) is not None
        ]
    return min(limits, default=None)


def limit_of(folder: Path) -> float | None:
    """Cores' worth of time allowed by one cgroup."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text()
    except OSError:
        return None
    return None if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
