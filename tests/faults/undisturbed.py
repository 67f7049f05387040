"""What a run's recorded batches make of its model when nobody dies.

For: comparing bits. Run it in a process of its own: DeepSpeed meets its gang once a process.
"""

from __future__ import annotations

from pathlib import Path

from broker.weights import TENSORS, VersionStore, file_digest, read_batch
from consumers.algorithms import create as create_algorithm
from consumers.learners import create
from consumers.step_inputs import advantages_of
from deploy.run_check import load_run
from tests.faults.audit import lineage_of
from tests.faults.worlds import World


def undisturbed(folder: Path, world: World, scratch: Path) -> list[str]:
    """Digests of the tensors after each recorded batch, by one learner that nothing interrupts."""
    settings = load_run("addition", list(world.overrides))
    learner = create(
        world.learner,
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
        learner.export()(scratch)
        digests.append(file_digest(scratch / TENSORS))
    learner.close()
    return digests
