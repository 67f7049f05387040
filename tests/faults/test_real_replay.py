"""A trainer with a real model dies between `prepare` and `commit`: what it had computed is found again, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.weights import TENSORS, VersionStore, file_digest, read_batch
from consumers.algorithms import create as create_algorithm
from consumers.learners import create
from consumers.policies import tiny_llama
from consumers.trainer_consumer import advantages_of
from deploy.run_check import load_run
from tests.faults.audit import assert_went_well, lineage_of, said_by_trainers
from tests.faults.dying_learner import STEP_KEPT
from tests.faults.strikes import Observed
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


def undisturbed(folder: Path, scratch: Path) -> list[str]:
    """Digests of the tensors after each recorded batch, by one learner that nothing interrupts."""
    settings = load_run("addition", list(TINY.overrides))
    learner = create(
        TINY.learner,
        model_folder=folder / "model",
        settings=settings.train,
        algorithm=settings.algorithm,
        model=settings.model,
        seed=settings.run.seed,
    )
    algorithm, digests = create_algorithm(settings.algorithm), list[str]()
    for one in lineage_of(folder):
        groups = read_batch(VersionStore(folder / "store").folder(one.path))
        learner.step(groups, advantages_of(algorithm, groups), version=one.version - 1, seed=one.seed)
        learner.export(scratch)
        digests.append(file_digest(scratch / TENSORS))
    learner.close()
    return digests


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
    assert digests == undisturbed(folder, scratch)
