"""One rank of a learner on several, in a process of its own. Rank 0 says where to meet, then what it has trained; the
test that starts it speaks to its standard input.

python rank_process.py RANK MODEL OUT STAGE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from broker.errors import TidemillError
from broker.role_process import leave
from broker.settings import ModelSection
from broker.telemetry import Meter
from consumers.learners.gang import meeting_place
from consumers.learners.ranks import serve_rank
from consumers.settings import AlgorithmSection, TrainSection
from tests.contract.learner_cases import LR, advantages, groups, learner

TRAIN: dict[str, Any] = {"ranks": 2, "micro_tokens": 60}


def main(rank: int, model: Path, out: Path, stage: int) -> None:
    if rank:
        settings = TrainSection(**TRAIN, lr=LR, zero_stage=stage)
        serve_rank(
            rank,
            model_folder=model,
            settings=settings,
            algorithm=AlgorithmSection(),
            model=ModelSection(),
            seed=0,
            meter=Meter(),
        )
        return
    place = meeting_place()
    sys.stdout.write(f"meet {place.port}\n")
    sys.stdout.flush()
    leader = learner(model, **TRAIN, zero_stage=stage)
    metrics: dict[str, float] = {}
    for version in range(2):
        batch = groups(version)
        metrics = dict(leader.step(batch, advantages(batch), version=version, seed=version).metrics)
    leader.export()(out)
    leader.save(out / "checkpoint")
    leader.load(out / "checkpoint")
    batch = groups(9, count=1)  # fewer groups than ranks: one rank has nothing to do
    leader.step(batch, advantages(batch), version=2, seed=2)
    sys.stdout.write(f"trained {metrics['loss']} {metrics['grad_norm']}\n")
    sys.stdout.flush()
    if sys.stdin.readline().strip() == "step":
        leader.step(batch, advantages(batch), version=3, seed=3)
    leader.close()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    except TidemillError as error:
        sys.stderr.write(f"{error}\n")
        leave(error.exit_code)
