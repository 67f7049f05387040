"""A comparison that is played in parts, which may be interrupted, finds what one played in one go finds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.simulation_parts import compared
from scheduler.settings import SchedulerSection
from scheduler.simulation.comparison import compare
from scheduler.simulation.workloads import workload_named

LOAD = workload_named("drift").shortened(10)


def test_parts_make_the_same_comparison_and_are_played_once(tmp_path: Path) -> None:
    parts, seconds = compared(LOAD, 4, range(2), tmp_path, processes=1)
    whole = compare(LOAD, 4, range(2), SchedulerSection())
    assert parts.facts() == whole.facts()
    assert [len(found) for found in parts.outcomes.values()] == [2] * 5
    again, same_seconds = compared(LOAD, 4, range(2), tmp_path, processes=1)
    assert (again.facts(), same_seconds) == (whole.facts(), seconds)
    assert seconds > 0
