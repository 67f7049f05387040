"""Whether a controller process that ended is started again, and when.

For: the judgement, from exit codes and times alone. Not for: doing it (`controller_process`). Exit codes are those of
`broker.errors`: 0 finished · 2 misconfigured · 70 broken · 75 transient · 76 fenced; a negative code is the signal it
died of.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from broker.errors import Broken, Fenced, Misconfigured, Transient

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


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
    """Crashes in a row after which the run stops: lives without progress, shorter than `window_s`."""
    window_s: float = 60.0


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
    failures = failures_in_a_row(exits, limits)
    crashes = sum(failure.code != Transient.exit_code for failure in failures)
    if crashes >= limits.crashes:
        return StopRun(
            reason=f"{how}, {crashes} times in a row without progress; giving up", exit_code=Broken.exit_code
        )
    pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** max(0, len(failures) - 1))
    return Respawn(at=now + pause, reason=f"{how} after {last.lived_s:.1f} s; starting it again in {pause:g} s")


def failures_in_a_row(exits: Sequence[Exit], limits: Limits) -> list[Exit]:
    """The latest exits, newest first, back to the last life that was long or brought the run forward."""
    failures: list[Exit] = []
    for life in reversed(exits):
        if life.progressed or life.lived_s >= limits.window_s:
            break
        failures.append(life)
    return failures


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
        1: "an error",
    }
    return f"exited with code {code} ({kinds[code]})" if code in kinds else f"exited with code {code}"
