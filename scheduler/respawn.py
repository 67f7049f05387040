"""Whether a controller process that ended is started again, and when.

For: the judgement, from exit codes and times alone. Not for: doing it (`controller_process`). Exit codes are those of
`broker.errors`: 0 finished · 2 misconfigured · 69 no server · 70 broken · 75 transient · 76 fenced; a negative code is
the signal it died of.

A life *failed* if it did no work and was short. Failures in a row end in giving up, whatever kinds they were; only a
server that is away is waited for, for as long as it takes.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from broker.errors import Broken, Fenced, Misconfigured, Transient, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Before the first new start after a failure, how they grow with each that follows in a row, and the longest."""

    first_s: float
    factor: float
    longest_s: float

    def after(self, failures: int) -> float:
        return min(self.longest_s, self.first_s * self.factor ** max(0, failures - 1))


CRASHED = Pauses(first_s=0.1, factor=2, longest_s=5.0)
ABSENT = Pauses(first_s=0.1, factor=2, longest_s=5.0)
PASSING = Pauses(first_s=1.0, factor=4, longest_s=60.0)
"""What the process itself calls passing is given time to pass: five starts reach over a minute and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """One life that ended."""

    code: int
    at: float
    """Seconds, by the caller's clock."""
    lived_s: float
    progressed: bool = False
    """It finished at least one unit of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    crashes: int = 5
    """Failures in a row after which it is given up."""
    window_s: float = 60.0
    """A life without progress that crashed failed if it was shorter."""
    passing_s: float = 600.0
    """The same for one that left with a passing fault: it may need long to load before it meets it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Respawn:
    """Start it again at `at`."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """It is not needed any more; the others go on."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Nothing good can come of going on."""

    reason: str
    exit_code: int


Decision = Respawn | Leave | StopRun


def decide_respawn(exits: Sequence[Exit], now: float, limits: Limits) -> Decision:
    """What to do about the last of `exits` (oldest first, at least one)."""
    last = exits[-1]
    how = in_words(last.code)
    if last.code == 0:
        return Leave(reason="finished its work")
    if last.code == Fenced.exit_code:
        return Leave(reason="was fenced: another of its kind with a higher epoch has taken over")
    if last.code == Misconfigured.exit_code:
        return StopRun(reason=f"{how}; it would say the same again, so it is not restarted", exit_code=last.code)
    if last.code == Broken.exit_code:
        return StopRun(reason=f"{how}; it is not restarted, so that its evidence stays", exit_code=last.code)
    if last.code == Unavailable.exit_code:
        pause = ABSENT.after(absences_in_a_row(exits))
        return Respawn(at=now + pause, reason=f"{how}; starting it again in {pause:g} s, as often as it takes")
    failures = failures_in_a_row(exits, limits)
    if failures >= limits.crashes:
        return StopRun(
            reason=f"{how}, {failures} times in a row without progress; giving up", exit_code=Broken.exit_code
        )
    pause = (PASSING if last.code == Transient.exit_code else CRASHED).after(failures)
    return Respawn(at=now + pause, reason=f"{how} after {last.lived_s:.1f} s; starting it again in {pause:g} s")


def failures_in_a_row(exits: Sequence[Exit], limits: Limits) -> int:
    """The latest exits, back to the last life that was long or brought the run forward; absences of the server count
    neither way."""
    failures = 0
    for life in reversed(exits):
        if life.code == Unavailable.exit_code and not life.progressed:
            continue
        window_s = limits.passing_s if life.code == Transient.exit_code else limits.window_s
        if life.progressed or life.lived_s >= window_s:
            break
        failures += 1
    return failures


def absences_in_a_row(exits: Sequence[Exit]) -> int:
    return next((count for count, life in enumerate(reversed(exits)) if life.code != Unavailable.exit_code), len(exits))


def in_words(code: int) -> str:
    """An exit code as a person would say it."""
    if code < 0:
        known = {s.value for s in signal.Signals}
        name = signal.Signals(-code).name if -code in known else "unknown"
        return f"was killed by signal {-code} ({name})"
    kinds = {
        Misconfigured.exit_code: "misconfigured",
        Broken.exit_code: "broken",
        Transient.exit_code: "a passing fault",
        Unavailable.exit_code: "its server does not answer",
        1: "an error",
    }
    return f"exited with code {code} ({kinds[code]})" if code in kinds else f"exited with code {code}"
