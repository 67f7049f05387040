"""A trainer with a real model dies between `prepare` and `commit`: what it had computed is found again, bit for bit."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from consumers.policies import tiny_llama
from tests.faults.audit import assert_went_well, lineage_of, said_by_trainers
from tests.faults.dying_learner import STEP_KEPT
from tests.faults.strikes import Observed
from tests.faults.undisturbed import undisturbed
from tests.faults.worlds import EVERY_VERSION_STAYS, World, new_run

CUT_OFF = 5
"""The version on whose way the trainer dies; its last checkpoint is of version 3."""

TINY = World(
    learner="deepspeed",
    overrides=(
        EVERY_VERSION_STAYS,
        "model.warm_start=none",
        "rollout.engine=torch",
        "rollout.group_size=8",
        'reward.parts=[{name = "format", options = {pattern = ".*[0-9].*"}}]',
        "run.stop_when=''",
        "run.steps=6",
        "train.groups=4",
        "train.checkpoint_every=3",
        "prompts.eval.size=0",
    ),
    groups=4,
    steps=6,
    strike_at=0,
    within_s=100,
    learns=False,
)


@pytest.mark.parametrize(
    "gap", ["before the commit", pytest.param("while the version is written", marks=pytest.mark.nightly)]
)
def test_after_a_death_between_prepare_and_commit_every_version_has_the_bits_of_an_undisturbed_run(
    gap: str, tmp_path: Path
) -> None:
    mark, runs, scratch = tmp_path / "died", tmp_path / "runs", tmp_path / "scratch"
    options = f'{{of = "{TINY.learner}", gap = "{gap}", at = {CUT_OFF}, mark = "{mark}"}}'
    folder = new_run(TINY, runs, 'train.learner="tests.faults.dying_learner:make"', f"train.options={options}")
    (folder / "model").mkdir()
    tiny_llama.build(folder / "model", dtype="float32", seed=0)
    scratch.mkdir()
    run = Observed(folder)
    run.finish(TINY.within_s)
    assert mark.exists(), "the trainer never came to this gap"
    assert_went_well(run, TINY)
    lineage = lineage_of(folder)
    assert (lineage[CUT_OFF - 1].epoch == lineage[0].epoch) == (gap in STEP_KEPT)
    assert '"replaying"' in said_by_trainers(folder), "nothing had to be replayed"
    digests = [one.digest for one in lineage]
    assert len(set(digests)) == TINY.steps, "a step changed nothing, so its bits show nothing"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # DeepSpeed meets its gang once a process
        assert digests == fresh.submit(undisturbed, folder, TINY, scratch).result(60)
