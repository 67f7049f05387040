"""A run trained by the barest asynchronous loop there is, as a command that `price` calls.

For: `price`, as that against which the guarantees are paid for. It takes the run of FOLDER with the same engine core,
learner, prompts, rules, batch and staleness bound, sampling and training side by side: in two threads with
`queue.Queue`, or in two processes with `multiprocessing.Queue`. Weights go through one file a version in shared memory.
Not for: anything a person would want after a failure. There is no server, ledger, manifest, digest, fsync, checkpoint,
archive, heartbeat or retry; rules are called where the groups are sampled, without a deadline.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.bare_sampler import LONGEST_WAIT_S, TENSORS_IN, Bound, Finished, Inbox, Outbox, pin, sample
from broker.messages import Group
from consumers import learners
from consumers.algorithms import create as create_algorithm
from consumers.step_inputs import advantages_of, step_seed
from deploy.run_check import saved_run
from deploy.run_settings import RunSettings

FORMS = ("threads", "processes")
KEPT = 3
"""Versions in shared memory: the sampler may be reading the one before the newest."""

Line = dict[str, Any]
"""One trained version, named as in a run's `steps.jsonl`; `publish_s` is the hand-over of the weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--versions", type=int, required=True)
    parser.add_argument("--form", choices=FORMS, default="processes")
    parser.add_argument("--into", type=Path, required=True, help="file for the lines, one a version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bare-loop-") as weights:
        lines = run(options.folder, Path(weights), options.form, options.versions)
    options.into.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(folder: Path, weights: Path, form: str, versions: int) -> list[Line]:
    """consumes: groups   produces: `versions` versions   waits for: the sampler   unblocked by: it, or its failure"""
    if form == "threads":
        import queue

        results, news = queue.Queue[Any](), queue.Queue[Any]()
        sampler = threading.Thread(target=sample, args=(folder, weights, results, news), daemon=True)
    else:
        context = multiprocessing.get_context("spawn")
        results, news = context.Queue(), context.Queue()
        sampler = context.Process(target=sample, args=(folder, weights, results, news), daemon=True)
    if form == "processes":
        sampler.start()
    pin("trainer-0")
    torch.set_num_threads(1)
    training = Training(folder, weights, results, news)
    if form == "threads":  # two threads that import the same libraries at the same time get half of them
        sampler.start()
    try:
        return training.train(versions)
    finally:
        news.put(None)
        while sampler.is_alive():  # a child does not end before what it has sent is taken
            drain(results)
            sampler.join(0.1)


def drain(results: Inbox) -> None:
    while not results.empty():
        results.get(timeout=LONGEST_WAIT_S)


class Training:
    """The trainer's half."""

    def __init__(self, folder: Path, weights: Path, results: Inbox, news: Outbox) -> None:
        settings = saved_run(folder)
        self.weights, self.results, self.news = weights, results, news
        self.settings, self.bound = settings, Bound.of(settings)
        self.algorithm = create_algorithm(settings.algorithm)
        self.learner = learner_of(folder, settings)
        self.open = set(range(self.bound.admitted(0)))
        self.ready: dict[int, Group] = {}
        self.sampler: Mapping[str, float] = {}
        self.version = 0

    def train(self, versions: int) -> list[Line]:
        self.hand_over()
        lines: list[Line] = []
        while self.version < versions:
            began = time.monotonic()
            batch = [self.ready.pop(number) for number in self.next_batch()]
            waited = time.monotonic()
            credit = advantages_of(self.algorithm, batch)
            seed = step_seed(self.settings.run.seed, self.version)
            told = self.learner.step(batch, credit, version=self.version, seed=seed)
            trained = time.monotonic()
            staleness = self.staleness(batch)
            self.version += 1
            self.hand_over()
            self.open |= set(range(self.bound.admitted(self.version - 1), self.bound.admitted(self.version)))
            seconds = {"wait_s": waited - began, "train_s": trained - waited, "publish_s": time.monotonic() - trained}
            lines.append(self.line(batch, staleness) | seconds | {"compute_s": told.metrics["compute_s"]})
        return lines

    def next_batch(self) -> list[int]:
        """Numbers of the oldest groups that make a legal batch, once they are there."""
        while True:
            while not self.results.empty():
                self.take()
            if batch := self.bound.batch(self.ready, self.open, self.version):
                self.open -= set(batch)
                return batch
            self.take()

    def take(self) -> None:
        """What has come, or comes. Raises the sampler's failure, and queue.Empty when nothing comes for too long."""
        finished: Finished = self.results.get(timeout=LONGEST_WAIT_S)
        if finished.failure:
            raise RuntimeError(f"the sampler failed: {finished.failure}")
        self.ready.update(finished.groups)
        self.sampler = finished.spent

    def staleness(self, batch: Sequence[Group]) -> list[int]:
        """Of each group. Raises RuntimeError when the bound was broken: then this is no fair comparison."""
        found = [self.version - group.rollouts.oldest_version for group in batch if group.rollouts]
        if max(found) > self.bound.staleness:
            raise RuntimeError(f"staleness {max(found)} at version {self.version}, bound {self.bound.staleness}")
        return found

    def hand_over(self) -> None:
        folder = self.weights / TENSORS_IN.format(self.version)
        folder.mkdir()
        self.learner.export()(folder)
        self.news.put(self.version)
        shutil.rmtree(self.weights / TENSORS_IN.format(self.version - KEPT), ignore_errors=True)

    def line(self, batch: Sequence[Group], staleness: Sequence[int]) -> Line:
        return {
            "version": self.version,
            "at": time.time(),
            "groups": len(batch),
            "reward": sum(group.reward or 0.0 for group in batch) / len(batch),
            "tokens": sum(group.tokens for group in batch),
            "staleness": {"mean": sum(staleness) / len(staleness), "max": max(staleness)},
            "processor_s": time.thread_time(),
            **{f"sampler_{name}": seconds for name, seconds in self.sampler.items()},
        }


def learner_of(folder: Path, settings: RunSettings) -> Any:
    return learners.create(
        settings.train.learner,
        model_folder=folder / "model",
        settings=settings.train,
        algorithm=settings.algorithm,
        model=settings.model,
        seed=settings.run.seed,
    )
