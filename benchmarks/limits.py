"""How near whole runs come to what the machine's cores can do: `python -m benchmarks.limits`.

After each run, the groups of its last versions are sampled again and trained on again, alone, on one thread: by the
engine's bare core, and by forward, backward and AdamW without anything around them. The ceiling is all cores busy with
nothing but that; the run's own bound is its slower role busy without a pause. Both are counted in processor seconds of
one thread. Held-out prompts, work that the ceiling does not count, are sampled at the end alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.result import Result, circumstances, gathered
from broker.archive import Closed
from broker.archive_index import GroupIndex
from broker.messages import Group
from broker.weights import TENSORS, VersionStore
from consumers import policies
from consumers.learners.rollouts import Rollout, passes, rollouts_of
from deploy.run_check import saved_run
from deploy.run_settings import RunSettings
from producers.engines import factory

RUNS = {"addition": 300, "long-tail": 150}
"""Run → versions."""
LAST = 40
"""Versions at the end of a run that are looked at."""
CORES = len(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", nargs="+", choices=sorted(RUNS), default=sorted(RUNS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = circumstances()
    samples: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for name in options.runs:
            launch(Path(root), name, ["run.steps=1"])
            for _ in range(options.repeats):
                run = launch(
                    Path(root),
                    name,
                    [f"run.steps={RUNS[name]}", "run.stop_when=''", f"prompts.eval.every={RUNS[name]}"],
                )
                samples.setdefault(name, []).append(measured(run))
                print(name, samples[name][-1], flush=True)
    result = Result(
        name="limits",
        measures=f"groups/s of whole runs against their own work done alone, over the last {LAST} versions",
        circumstances=before,
        settings={"steps": {name: RUNS[name] for name in options.runs}, "last": LAST, "cores": CORES},
        samples={name: gathered(found) for name, found in samples.items()},
    )
    result.save("; ".join(headline(result, name) for name in samples))


def measured(run: LaunchedRun) -> dict[str, float]:
    """One run against its limits, and where its seconds went."""
    settings, steps = saved_run(run.folder), run.steps[-LAST:]
    seconds = steps[-1]["at"] - steps[0]["at"]
    groups = sum(step["groups"] for step in steps[1:])
    batches = last_batches(run.folder, steps[0]["version"])
    sample_s = statistics.median(sampling_s(run.folder, settings, batches)) / settings.train.groups
    train_s = statistics.median(training_s(run.folder, settings, batches)) / settings.train.groups
    ceiling, bound = CORES / (sample_s + train_s), 1 / max(sample_s, train_s)
    spent = {part: sum(step[part] for step in steps[1:]) / seconds for part in ("wait_s", "train_s", "publish_s")}
    busy = run.report["busy_share"]
    found = {
        "groups_per_s": groups / seconds,
        "ceiling_groups_per_s": ceiling,
        "own_bound_groups_per_s": bound,
        "of_ceiling": groups / seconds / ceiling,
        "of_own_bound": groups / seconds / bound,
        "sample_ms_a_group": 1000 * sample_s,
        "train_ms_a_group": 1000 * train_s,
        **{f"trainer_{part.removesuffix('_s')}_share": share for part, share in spent.items()},
        "trainer_rest_share": 1 - sum(spent.values()),
        **{f"busy_{role}": share for role, share in sorted(busy.items())},
    }
    return {name: round(value, 4) for name, value in found.items()}


def last_batches(folder: Path, after: int) -> list[list[Closed]]:
    """The groups trained into each version from `after` on."""
    found: dict[int, list[Closed]] = {}
    with GroupIndex(folder / "groups") as index:
        index.refresh()
        for closed in index.read_all():
            if closed.fate == "trained" and (closed.version or 0) >= after:
                found.setdefault(closed.version or 0, []).append(closed)
    return [batch for _, batch in sorted(found.items())]


def sampling_s(folder: Path, settings: RunSettings, batches: Sequence[Sequence[Closed]]) -> list[float]:
    """Processor seconds in which the bare engine samples each batch anew, with the run's last weights; a batch follows
    the one before it without a gap, so each time but the first and the last is that of an engine that is full."""
    core = factory(settings.rollout.engine if settings.rollout.engine != "auto" else "torch")(
        model_folder=folder / "model", settings=settings.rollout, seed=0
    )
    core.load(last_tensors(folder), 0)
    waiting = [replace(closed.group, rollouts=None, scores=None) for batch in batches for closed in batch]
    whole, size, done, ends = len(waiting), settings.train.groups, 0, [time.process_time()]
    while done < whole:
        while waiting and len(waiting) > whole - done - core.capacity:
            core.add(waiting.pop(0))
        done += len(core.step())
        while done >= size * len(ends):
            ends.append(time.process_time())
    core.close()
    return [after - before for before, after in pairwise(ends)]


def last_tensors(folder: Path) -> Path:
    store = VersionStore(folder / "store")
    versions = [store.folder(one.path) for one in store.manifests()]
    return [one for one in versions if (one / TENSORS).is_file()][-1]


def training_s(folder: Path, settings: RunSettings, batches: Sequence[Sequence[Closed]]) -> list[float]:
    """Processor seconds of forward, backward, clipping and AdamW on each batch, in passes of the same size."""
    policy = policies.create(
        "causal_lm", folder / "model", dtype=settings.model.dtype, lora=settings.train.lora, seed=0, device="cpu"
    )
    trained = [one for one in policy.module.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-9, fused=True)

    def step(rollouts: Sequence[Rollout]) -> None:
        for part in passes(rollouts, ranks=1, budget=settings.train.micro_tokens, quadratic=policy.quadratic)[0]:
            columns = [one.context for one in part], [one.actions for one in part], [one.temperature for one in part]
            policy.logprobs(policy.module, *columns).mean().backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return [timed(lambda batch=batch: step(with_signal(batch))) for batch in batches]


def with_signal(batch: Sequence[Closed]) -> list[Rollout]:
    known = [(closed.group, closed.advantages) for closed in batch if closed.advantages is not None]
    groups: list[Group] = [group for group, _ in known]
    return [one for one in rollouts_of(groups, [credit for _, credit in known]) if one.advantage != 0]


def timed(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def headline(result: Result, name: str) -> str:
    def median(figure: str) -> float:
        return result.median(name, figure)

    return (
        f"`{name}` {median('groups_per_s'):,.0f} groups/s, {median('of_ceiling'):.0%} of the ceiling of {CORES} cores, "
        f"{median('of_own_bound'):.0%} of its own bound; a group takes {median('sample_ms_a_group'):.2f} ms to sample "
        f"and {median('train_ms_a_group'):.2f} ms to train; the trainer trains {median('trainer_train_share'):.0%}, "
        f"publishes {median('trainer_publish_share'):.0%}, waits {median('trainer_wait_share'):.0%} of its time"
    )


if __name__ == "__main__":
    main()
