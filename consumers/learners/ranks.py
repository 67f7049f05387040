"""A learner on several ranks: rank 0 repeats each call it gets to the others, and all do it together.

For: `[train] ranks` > 1; rank 0 inside the trainer, the others in processes of their own (`serve_rank`). Not for: what
a call does (`deepspeed`), how it travels (`gang`), or starting the processes (`rank_processes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from broker import codec
from broker.messages import Actions, Group
from broker.settings import ModelSection
from broker.telemetry import Meter
from consumers import policies
from consumers.learners import zero
from consumers.learners.base import Learner, StepResult, Write
from consumers.learners.deepspeed import DeepSpeedLearner, of_rank, options_of
from consumers.learners.gang import lost_ranks
from consumers.settings import AlgorithmSection, TrainSection

log = structlog.get_logger()


@dataclass(slots=True)
class Leader:
    """Rank 0's `base.Learner`."""

    own: DeepSpeedLearner

    def step(
        self, groups: Sequence[Group], advantages: Sequence[NDArray[np.float32]], *, version: int, seed: int
    ) -> StepResult:
        self.tell(
            "step",
            groups=[codec.encode_group(group) for group in groups],
            advantages=[credit.tolist() for credit in advantages],
            version=version,
            seed=seed,
        )
        with lost_ranks():
            return self.own.step(groups, advantages, version=version, seed=seed)

    def logprobs(self, contexts: Sequence[Actions], continuations: Sequence[Actions]) -> list[NDArray[np.float32]]:
        self.tell(
            "logprobs", contexts=[packed(one) for one in contexts], continuations=[packed(one) for one in continuations]
        )
        with lost_ranks():
            return self.own.logprobs(contexts, continuations)

    def export(self) -> Write:
        self.tell("export")
        with lost_ranks():
            return self.own.export()

    def save(self, folder: Path) -> None:
        self.tell("save", folder=str(folder))
        with lost_ranks():
            self.own.save(folder)

    def load(self, folder: Path) -> None:
        self.tell("load", folder=str(folder))
        with lost_ranks():
            self.own.load(folder)

    def load_weights(self, folder: Path) -> None:
        self.tell("load_weights", folder=str(folder))
        with lost_ranks():
            self.own.load_weights(folder)

    def save_pretrained(self, folder: Path) -> None:
        self.tell("save_pretrained", folder=str(folder))
        with lost_ranks():
            self.own.save_pretrained(folder)

    def close(self) -> None:
        self.tell("close")
        self.own.close()

    def tell(self, do: str, **arguments: Any) -> None:
        self.own.gang.tell({"do": do, **arguments})


def serve_rank(
    rank: int,
    *,
    model_folder: Path,
    settings: TrainSection,
    algorithm: AlgorithmSection,
    model: ModelSection,
    seed: int,
    meter: Meter,
) -> None:
    """consumes: rank 0's calls   produces: this rank's part in each
    waits for: rank 0   unblocked by: a call, `close`, or rank 0's death (raises Transient: leave, and start again)
    """
    learner = of_rank(rank, model_folder=model_folder, settings=settings, algorithm=algorithm, model=model, seed=seed)
    log.info("took my place", rank=rank, ranks=settings.ranks)
    meter.loaded()
    while True:
        meter.stage = "waiting for rank 0"
        call = learner.gang.next_call()
        meter.stage = call["do"]
        with meter.busy(), lost_ranks():
            obey(learner, call)
        if call["do"] == "step":
            meter.progress += 1
            meter.version = call["version"] + 1
        if call["do"] == "close":
            return


def obey(learner: DeepSpeedLearner, call: Mapping[str, Any]) -> None:
    """The same call on this rank; what it answers is rank 0's to give."""
    match call["do"]:
        case "step":
            groups = [codec.decode_group_bytes(group) for group in call["groups"]]
            advantages = [np.array(credit, np.float32) for credit in call["advantages"]]
            learner.step(groups, advantages, version=call["version"], seed=call["seed"])
        case "logprobs":
            learner.logprobs(
                [unpacked(one) for one in call["contexts"]], [unpacked(one) for one in call["continuations"]]
            )
        case "export":
            learner.export()
        case "close":
            learner.close()
        case do:
            getattr(learner, do)(Path(call["folder"]))


def packed(actions: Actions) -> tuple[str, list[int], bytes]:
    return actions.dtype.str, list(actions.shape), actions.tobytes()


def unpacked(parts: Sequence[Any]) -> Any:
    dtype, shape, content = parts
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape)


def preload(model_folder: Path, settings: TrainSection) -> None:
    """Import what a rank needs, and touch no device."""
    policies.preload(options_of(settings).policy, model_folder)
    zero.preload("cuda" if torch.cuda.is_available() else "cpu")


def make(
    *, model_folder: Path, settings: TrainSection, algorithm: AlgorithmSection, model: ModelSection, seed: int
) -> Learner:
    """Rank 0's learner; alone it tells nobody."""
    own = of_rank(0, model_folder=model_folder, settings=settings, algorithm=algorithm, model=model, seed=seed)
    return Leader(own) if settings.ranks > 1 else own
