"""A run's curves for TensorBoard: scalars of each step and each evaluation, in `RUN/tensorboard`.

For: `tensorboard --logdir runs`. Not for: the records themselves (`step_record`), from whose lines these are made. A
thread of the library writes them; a step pays for putting its numbers into a queue.

A trainer that comes back says from which step on whatever stands there is void, so no step is shown twice.
"""

# Protocol buffers make their classes at import: a checker sees none.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from consumers.step_metrics import learned

FOLDER = "tensorboard"
FLUSH_S = 1
"""At most so long until what was written is seen, and what a `kill -9` takes along."""
QUEUE = 1000
"""Events that may wait for the disk before a step does."""
TIMES = {"wait_s": "time/wait_s", "train_s": "time/train_s", "publish_s": "time/publish_s", "seconds": "time/step_s"}


class Scalars:
    """The curves of one run, from one trainer's start to its end."""

    def __init__(self, folder: Path, *, goes_on_at: int) -> None:
        """`goes_on_at`: the next version; what an earlier trainer wrote from there on counts no more."""
        self.writer = EventFileWriter(str(folder / FOLDER), max_queue_size=QUEUE, flush_secs=FLUSH_S)
        if goes_on_at > 1:
            self.writer.add_event(Event(step=goes_on_at, session_log=SessionLog(status=SessionLog.START)))

    def step(self, record: Mapping[str, Any]) -> None:
        self.add(record, step_scalars(record))

    def evaluation(self, record: Mapping[str, Any]) -> None:
        self.add(record, evaluation_scalars(record))

    def add(self, record: Mapping[str, Any], scalars: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self.writer.add_event(
            Event(step=int(record["version"]), wall_time=float(record["at"]), summary=Summary(value=values))
        )

    def close(self) -> None:
        self.writer.close()


def step_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Tag → value of one line of `steps.jsonl`; speeds only where the step's time is known."""
    seconds, rollouts = float(record["seconds"]), max(1, record["rollouts"])
    found = {
        "reward/mean": float(record["reward"]),
        "reward/groups_without_signal": float(record["zero_signal"]),
        "staleness/mean": float(record["staleness"]["mean"]),
        "staleness/max": float(record["staleness"]["max"]),
        "length/mean": record["tokens"] / rollouts,
        **{f"train/{name}": value for name, value in learned(record).items()},
        **{tag: float(record[name]) for name, tag in TIMES.items() if record.get(name)},
    }
    if seconds > 0:
        found |= {
            "speed/tokens_per_s": record["tokens"] / seconds,
            "speed/rollouts_per_s": record["rollouts"] / seconds,
        }
    return found


def evaluation_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Tag → value of one line of `evaluations.jsonl`."""
    tasks = {f"eval/accuracy/{task}": float(value) for task, value in record["tasks"].items()}
    return {"eval/accuracy": float(record["accuracy"]), **(tasks if len(tasks) > 1 else {})}
