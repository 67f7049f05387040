"""What the placement benchmark holds its fleet against: phases of co-location, and the simulator's arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.paced_fleet import CASES, COLOCATED, OURS, STATIC, TAKES, overrides, responses, throughputs
from benchmarks.paced_simulation import predicted
from benchmarks.phases import Phases
from deploy.run_check import load_run
from tests.unit.fleets import POOLS, fleet, seen


@pytest.mark.parametrize("change", ["length", "votes"])
@pytest.mark.parametrize("case", CASES)
def test_every_case_is_a_sound_run(case: str, change: str) -> None:
    settings = load_run("paced", overrides(case, change))
    assert (settings.scheduler.slots, settings.train.groups) == (6, 12)
    assert settings.train.staleness == (0 if case == COLOCATED else 2)


@pytest.mark.parametrize("case", sorted(STATIC))
def test_a_division_that_never_changes_does_what_its_scarcest_pool_can(case: str) -> None:
    bound = min(slots / TAKES[pool] for pool, slots in STATIC[case].items())
    found = predicted(case, "length")["before_groups_per_s"]
    assert 0.9 * bound <= found <= 1.02 * bound


def test_ours_beats_every_division_that_never_changes_on_the_simulator() -> None:
    ours = predicted(OURS, "length")["whole_groups_per_s"]
    assert ours > max(predicted(case, "length")["whole_groups_per_s"] for case in STATIC)


def test_throughput_is_taken_between_versions() -> None:
    found = throughputs({version: 2.0 * version for version in range(1, 23)})
    assert set(found.values()) == {6.0}


def test_only_orders_after_the_change_count() -> None:
    story = [
        {"at": at, "moves": [{"source": source, "target": target}]}
        for at, source, target in ((5.0, "judge", "rollout"), (12.0, "judge", "rollout"), (19.0, "rollout", "judge"))
    ]
    assert responses(story, 10.0, "rollout") == {"first_move_s": 2.0, "last_move_s": 2.0, "there": 1, "back": 1}
    assert responses(story, 20.0, "rollout") == {}


@pytest.mark.parametrize(
    ("backlog", "split"),
    [
        ({"prompts": 1, "rollouts": 9, "scored": 2}, {"rollout": 6}),
        ({"rollouts": 1, "scored": 11}, {"judge": 6}),
        ({"scored": 12}, {"judge": 5, "train": 1}),
        ({}, {"rollout": 2, "judge": 3, "train": 1}),
    ],
)
def test_synchronous_co_location_goes_on_when_a_phase_is_over(backlog: dict[str, int], split: dict[str, int]) -> None:
    now = fleet({"rollout": 2, "judge": 3, "train": 1})
    targets = Phases().targets(seen(now, **backlog), POOLS)  # type: ignore[arg-type]
    assert (dict(targets.split), targets.insists) == (split, True)
