"""What a slot needs to know of the run it works for, read from the run's folder once.

For: the pools a slot can be given, the commands that serve them, deadlines. Not for: which run is served
(`broker.fleet`), or running anything (`controller_process`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from broker.errors import Misconfigured
from broker.fleet import Served
from broker.settings import (
    RUNS_VARIABLE,
    SLOT_VARIABLE,
    URL_VARIABLE,
    BrokerSection,
    load_section,
    run_folder_settings,
)
from scheduler.controller_process import Command
from scheduler.devices import Devices
from scheduler.pools import Pool, needs_slot, pool_named, pools_in_use
from scheduler.respawn import Limits
from scheduler.settings import PoolSection, SchedulerSection


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """A run as a slot sees it."""

    folder: Path
    url: str
    pools: tuple[Pool, ...]
    limits: Limits
    drain_s: float
    """How long a controller may drain when its slot is wanted elsewhere."""
    leave_s: float
    """How long a role may take to leave; its worker is not given longer."""
    spare: bool
    """Whether a spare is kept."""

    @classmethod
    def read(cls, served: Served) -> Self:
        """Raises Misconfigured for a folder that is no run's, or settings that no slot can serve."""
        folder = Path(served.folder)
        check_place(folder)
        raw = run_folder_settings(folder)
        settings = load_section(SchedulerSection, "scheduler", raw["scheduler"])
        return cls(
            folder=folder,
            url=served.url,
            pools=pools_of(raw),
            limits=Limits(crashes=settings.crash_limit, window_s=settings.crash_window_s),
            drain_s=settings.drain_s,
            leave_s=load_section(BrokerSection, "broker", raw["broker"]).drain_s,
            spare=settings.spare,
        )

    @property
    def names(self) -> list[str]:
        """Of its pools."""
        return [pool.name for pool in self.pools]

    def controller(self, pool: str, slot: str, devices: Devices) -> Command:
        """What works for `pool` on the slot. Raises Misconfigured for a pool that is not there."""
        words = pool_named(pool, self.pools).command.split()
        return self.command((*words, "--run", str(self.folder), "--name", slot), slot, devices)

    def spare_command(self, slot: str, devices: Devices) -> Command:
        """What waits to become any of its controllers."""
        commands = (word for pool in self.pools for word in ("--for", pool.command))
        return self.command(("scheduler.spare", "--run", str(self.folder), *commands), slot, devices)

    def command(self, words: Sequence[str], slot: str, devices: Devices) -> Command:
        return Command(
            name=slot,
            argv=(sys.executable, "-m", *words),
            env={**devices.environment(), URL_VARIABLE: self.url, SLOT_VARIABLE: slot},
            cores=devices.cores,
            output=self.folder / "logs" / f"{slot}.err",
        )


def check_place(folder: Path) -> None:
    """A run's settings name programs that its slots start, and the server names the run. So where TIDEMILL_RUNS says
    which runs there are, raises Misconfigured for a folder that is none of them.
    """
    root = os.environ.get(RUNS_VARIABLE)
    if root and not folder.resolve().is_relative_to(Path(root).resolve()):
        raise Misconfigured(
            f"the fleet is told to work for {folder}, which is not in {RUNS_VARIABLE} = {root}; nothing is started for "
            "it; start the worker with that variable as the run was started, or find out who told the fleet so"
        )


def pools_of(raw: dict[str, Any]) -> tuple[Pool, ...]:
    """The pools of a run from its settings file."""
    sections = {name: load_section(PoolSection, f"pools.{name}", section) for name, section in raw["pools"].items()}
    return pools_in_use(sections, judged=needs_slot(raw["reward"]))
