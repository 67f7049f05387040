"""The four ways things go wrong, named by who must act.

For: every error that crosses a role's boundary. Not for: outcomes of healthy work (a stale or signal-free group is
retired, see `outcomes`); extensions (engines, rewards, algorithms) raise ordinary Python errors, which `consume` sorts.

A message tells three things: what happened, with the values; what the system does next; what a person can do.
"""

from __future__ import annotations

import errno


class TidemillError(Exception):
    """Root of the tree; `tidemill` prints these without a traceback."""

    exit_code = 1


class Transient(TidemillError):
    """The world hiccuped (connection, full server, killed helper process): the work is released and tried again."""

    exit_code = 75


class Unavailable(Transient):
    """The server did not answer in time, refused, or is loading its data. A process that leaves with it did nothing
    wrong: however often that happens, it is started again."""

    exit_code = 69


class Backpressure(Transient):
    """The server is at its memory limit; work that frees memory still runs, new work waits."""


class Poison(TidemillError):
    """This one group cannot be worked on, however often it is tried: it is buried with the reason."""


class Misconfigured(TidemillError, ValueError):
    """A person must change a setting or the environment; raised before anything has started."""

    exit_code = 2


class Broken(TidemillError):
    """An invariant failed: the process stops and leaves its evidence."""

    exit_code = 70


class Refused(Broken):
    """The ledger refused a step whole (its groups are no longer open, or its parent is not the head): the trainer drops
    the step, leaves, and its next start catches up from the newest checkpoint."""

    exit_code = 75


class Reset(TidemillError):
    """The server lost or re-opened the run (restart, FLUSHALL, restore): enter the run again, trust nothing held."""

    exit_code = 75


class Fenced(TidemillError):
    """A trainer with a higher epoch, or a newer host of a slot, has taken over: this one stops and writes no more."""

    exit_code = 76


NO_ROOM = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}


def full_disk(error: BaseException) -> Transient | None:
    """What the system's word for a full disk means here, also where a library repeats no more than the word (as
    safetensors does); None for every other error.
    """
    number, name = getattr(error, "errno", None), getattr(error, "filename2", None) or getattr(error, "filename", None)
    if number not in NO_ROOM and not any(words in str(error) for words in NO_ROOM.values()):
        return None
    where = f" ({name})" if name else ""
    return Transient(
        f"the disk is full{where}; what was not written is not done, and what was committed stays; free some room, "
        "then `tidemill resume`, or name another place in TIDEMILL_RUNS"
    )
