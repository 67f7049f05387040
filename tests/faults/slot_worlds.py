"""The two worlds in which stories of moving slots are told: by script, and with a real model.

For: their settings, and what must be true after each story. Not for: what happens in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.audit import assert_went_well
from tests.faults.slot_runs import OnSlots, story_of
from tests.faults.slot_witness import Witness, broken_rules
from tests.faults.worlds import REAL, SCRIPTED, World

DRAIN_S, DWELL_S = 5.0, 1.0
BRISK = (
    "scheduler.every_s=0.3",
    f"scheduler.dwell_s={DWELL_S:g}",
    f"scheduler.drain_s={DRAIN_S:g}",
    "scheduler.switching=1",
)
"""Decisions that do not wait: what is looked at is what a move does, not when it pays."""

BY_SCRIPT = replace(
    SCRIPTED,
    overrides=(*BRISK, "train.options={pace_s=0.15}", "rollout.options={pace_s=0.02}"),
    strike_at=3,
    within_s=120,
)
WITH_A_MODEL = replace(
    REAL,
    overrides=(*BRISK, "broker.drain_s=5", "broker.lease_s=2", "run.steps=30", "train.groups=32", "train.staleness=3"),
    groups=32,
    steps=30,
    strike_at=4,
    within_s=400,
    learns=False,
)
"""Three versions may pass between sampling and training, so that slots in short supply change roles less often."""
STALENESS = {BY_SCRIPT.learner: 1, WITH_A_MODEL.learner: 3}
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(1400)]
ON_SLOTS = [
    pytest.param(BY_SCRIPT, id="scripted", marks=pytest.mark.timeout(600)),
    pytest.param(WITH_A_MODEL, id="real", marks=NIGHTLY),
]

Launch = Callable[..., OnSlots]
"""(world, slots, *overrides) → a launched run on so many slots."""


def assert_all_is_well(run: OnSlots, world: World, witness: Witness) -> None:
    assert_went_well(run, world, staleness=STALENESS[world.learner])
    assert witness.found == [], witness.found
    assert witness.looks > 20, "nobody watched"
    broken = broken_rules(story_of(run.folder), DWELL_S, {})
    assert broken == [], broken
