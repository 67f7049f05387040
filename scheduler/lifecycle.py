"""The life of a slot as one table: what each event makes of each state. Total, so that no event can surprise it.

For: the supervisor that keeps a slot's state, the planner that reads it, the simulator. Not for: what a supervisor
does when the state changes (`slot`), nor when a process is started again (`respawn`).

A slot is told where it belongs by a record with an epoch. `assigned` means: a record with a higher epoch names another
pool than the slot works for. An event the state does not expect is an old one that arrives late; it changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    VACANT = "vacant"
    """Its worker lives and no pool has it."""
    MOVING = "moving"
    """Its controller for the wanted pool is being started, and holds no work yet."""
    SERVING = "serving"
    """Its controller works for the wanted pool."""
    DRAINING = "draining"
    """It is wanted elsewhere; its controller takes no more, and finishes or gives back what it holds by a deadline."""
    PARKED = "parked"
    """Its controller died too often in a row; a person looks at it, or assigns it anew."""
    DEAD = "dead"
    """Its worker was not heard of for too long; what it held goes to others."""


class Event(StrEnum):
    ASSIGNED = "assigned"
    """A newer record names another pool."""
    UNASSIGNED = "unassigned"
    """A newer record names no pool: drain and stay empty."""
    READY = "ready"
    """The controller is loaded and takes work."""
    LEFT = "left"
    """The controller ended in good order, with nothing in hand."""
    OVERRAN = "overran"
    """The drain's deadline passed: the controller was killed, others take over what it held."""
    CRASHED = "crashed"
    """The controller ended any other way and will be started again."""
    GAVE_UP = "gave_up"
    """It crashed too often."""
    LOST = "lost"
    """The worker has not been heard of."""
    HEARD = "heard"
    """The worker is heard again; it reads its record anew."""


V, M, S, D, P, X = State.VACANT, State.MOVING, State.SERVING, State.DRAINING, State.PARKED, State.DEAD

# fmt: off
LIFECYCLE: Final[dict[Event, dict[State, State]]] = {
    #                  vacant moving serving draining parked dead
    Event.ASSIGNED:   {V: M,  M: M,  S: D,   D: D,    P: M,  X: X},
    Event.UNASSIGNED: {V: V,  M: V,  S: D,   D: D,    P: V,  X: X},
    Event.READY:      {V: V,  M: S,  S: S,   D: D,    P: P,  X: X},
    Event.LEFT:       {V: V,  M: M,  S: M,   D: M,    P: P,  X: X},
    Event.OVERRAN:    {V: V,  M: M,  S: S,   D: M,    P: P,  X: X},
    Event.CRASHED:    {V: V,  M: M,  S: M,   D: M,    P: P,  X: X},
    Event.GAVE_UP:    {V: V,  M: P,  S: P,   D: P,    P: P,  X: X},
    Event.LOST:       {V: X,  M: X,  S: X,   D: X,    P: X,  X: X},
    Event.HEARD:      {V: V,  M: M,  S: S,   D: D,    P: P,  X: V},
}
# fmt: on
"""Event → state before → state after. A slot that drained to be unassigned is `moving` to no pool: see `settled`."""

WORKING: Final = frozenset({State.MOVING, State.SERVING, State.DRAINING})
"""States in which a pool has the slot."""


def after(state: State, event: Event) -> State:
    """What the event makes of the state."""
    return LIFECYCLE[event][state]


def settled(state: State, wanted: str) -> State:
    """The state once it is known which pool wants the slot: one that moves to no pool is vacant."""
    return State.VACANT if state is State.MOVING and not wanted else state
