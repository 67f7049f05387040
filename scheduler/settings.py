"""Settings of placement: `[scheduler]` and one `[pools.NAME]` per kind of slot. Imports no heavy library."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from broker.settings import Section


class SchedulerSection(Section):
    """`[scheduler]`"""

    cores: Literal["auto", "shared"] = "auto"
    """`auto` gives trainer and producers cores of their own and as many threads; `shared` pins nothing."""
    crash_limit: int = Field(default=5, ge=1)
    """A process that fails so many times in a row is not started again: the run stops and names it, a slot is parked. A
    server that is away fails nobody."""
    crash_window_s: float = Field(default=60.0, gt=0)
    """A life without work that crashed failed if it was shorter; one that left with a passing fault, if it was shorter
    than ten minutes."""
    slots: int = Field(default=0, ge=0)
    """Slots that move between pools; 0: a fixed placement without slots."""
    placement: str = "pressure"
    """Which pool should have how many slots: `pressure`, `proportional`, `fixed`, or a dotted path."""
    split: dict[str, int] = Field(default_factory=dict[str, int])
    """Pool → slots of the placement `fixed`; empty leaves every slot where it is."""
    every_s: float = Field(default=5.0, gt=0)
    """Between two decisions."""
    horizon_s: float = Field(default=300.0, gt=0)
    """A move must bring back what it costs within so long."""
    hysteresis: float = Field(default=0.03, ge=0)
    """c: a gain must exceed c of all slots' time, where the work that waits would fill the horizon, and less where less
    waits (by its square root); a larger one moves less."""
    memory_s: float = Field(default=120.0, gt=0)
    """What was measured so long ago weighs 1/e: shorter follows changes sooner and noise more."""
    dwell_s: float = Field(default=30.0, ge=0)
    """Shortest stay of a slot after a move, while it has something to do."""
    switching: float = Field(default=0.02, gt=0, le=1)
    """Most of all slots' time that moving may take from work. A slot that has nothing to do goes freely; a fleet too
    small for the share moves one slot per `dwell_s`."""
    drain_s: float = Field(default=60.0, gt=0)
    """A slot that is moved finishes or gives back what it holds within so long."""
    spare: bool = True
    """Each slot keeps a process that has imported what the run's engine and learner need, and becomes its next
    controller: seconds less a move, some 300 MB more memory a slot. None is kept where nothing heavy is imported."""


class PoolSection(Section):
    """`[pools.NAME]`; `rollout`, `judge` and `train` are known, any other name brings its stream and command."""

    stream: str = ""
    """Work stream whose backlog this pool answers for; empty for the shipped pools' own."""
    command: str = ""
    """What a slot of this pool runs, as `python -m COMMAND`; empty for the shipped pools' own."""
    min: int = Field(default=0, ge=0)
    """Slots the pool never goes below."""
    max: int | None = Field(default=None, ge=0)
    """Slots the pool never goes above; none for no limit."""
    move_cost: float = Field(default=0.0, ge=0)
    """Seconds a slot is lost for when it moves into this pool; 0 uses what was measured."""
    processes: int = Field(default=1, ge=1)
    """Processes in a fixed placement (a run without slots)."""
