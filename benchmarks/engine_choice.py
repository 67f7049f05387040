"""How fast each engine samples what the shipped runs ask for: `python -m benchmarks.engine_choice`.

For: the table `auto` follows (`producers/engines/choice.py`). Each run's own model (its warm start included), prompts,
group size and most tokens; as many groups in hand as that run's producer would have, a new one for each that ends.
Figures are for one thread, by processor seconds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.result import Result, circumstances, gathered
from broker.admission import cap
from broker.errors import Misconfigured
from broker.messages import Group
from deploy.initial_model import prepare
from deploy.run_check import load_run, saved_run
from deploy.run_folder import runs_root
from deploy.run_paths import check_paths
from deploy.run_settings import RunSettings
from producers.engines import factory
from producers.engines.base import EngineCore
from producers.prompt_groups import PromptGroups

RUNS = ("addition", "long-tail", "smollm2-sentiment", "reasoning-gym")
ENGINES = ("torch", "vllm")
SECONDS = 4.0
"""A repeat goes on for so many processor seconds at least."""


def why_not(name: str) -> str:
    """What a run lacks on this machine; empty when it can be measured."""
    try:
        check_paths(load_run(name))
    except Misconfigured as error:
        return f"{name}: {error}"
    return ""


@contextmanager
def run_folder(name: str, root: Path) -> Generator[Path]:
    """A run's settings and its initial model, which is taken from the cache when that run was started before."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as place:
        folder = Path(place)
        load_run(name).save(folder)
        prepare(folder)
        yield folder


def samples(folder: Path, engine: str, repeats: int) -> list[dict[str, float]]:
    """Runs in a process of its own: an engine leaves its mark on the environment, and its memory."""
    settings = saved_run(folder)
    began = time.monotonic()
    core: EngineCore = factory(engine)(model_folder=folder / "model", settings=settings.rollout, seed=0)
    core.load(folder / "model", 0)
    start_s = time.monotonic() - began
    prompts = PromptGroups.of(folder / "model", settings.run, settings.prompts, settings.rollout)
    groups = endless(prompts)
    measure(core, groups, settings, seconds=SECONDS / 4)  # warms up
    found = [measure(core, groups, settings, seconds=SECONDS) for _ in range(repeats)]
    core.close()
    return [{"start_s": round(start_s, 1), **one} for one in found]


def endless(prompts: PromptGroups) -> Iterator[Group]:
    cursor = 0
    while True:
        yield from prompts.training(cursor, 1)
        cursor += 1


def measure(core: EngineCore, groups: Iterator[Group], settings: RunSettings, *, seconds: float) -> dict[str, float]:
    """Whole groups ended per processor second; a group is replaced at once until the time is up, then all may end."""
    in_hand = min(core.capacity, cap(settings.train.groups, settings.train.staleness))
    for _ in range(in_hand):
        core.add(next(groups))
    rollouts = tokens = 0
    began = time.process_time()
    while not core.is_idle:
        for _, ended in core.step():
            rollouts += len(ended.texts)
            tokens += len(ended.logprobs)
            if time.process_time() - began < seconds:
                core.add(next(groups))
    spent = time.process_time() - began
    return {"completions_per_s": round(rollouts / spent, 2), "tokens_per_s": round(tokens / spent, 1)}


def apart(folder: Path, engine: str, repeats: int) -> list[dict[str, float]]:
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(samples, folder, engine, repeats).result()


def headline(found: dict[str, dict[str, list[float]]]) -> str:
    """Per run the engines' medians side by side."""
    middle = {case: statistics.median(figures["completions_per_s"]) for case, figures in found.items()}
    runs = dict.fromkeys(case.partition(" on ")[0] for case in found)
    each = (f"{run} " + " : ".join(f"{middle[f'{run} on {engine}']:,.0f}" for engine in ENGINES) for run in runs)
    return f"completions a second, {' : '.join(ENGINES)}: {', '.join(each)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    options = parser.parse_args()
    where, shapes, found = circumstances(), {}, dict[str, dict[str, list[float]]]()
    root = runs_root()
    root.mkdir(parents=True, exist_ok=True)
    lacking = [why for run in options.runs if (why := why_not(run))]
    for run in (run for run in options.runs if not why_not(run)):
        with run_folder(run, root) as folder:
            shapes[run] = saved_run(folder).rollout.model_dump(mode="json")
            for engine in ENGINES:
                found[f"{run} on {engine}"] = gathered(apart(folder, engine, options.repeats))
                print(run, engine, found[f"{run} on {engine}"], flush=True)
    result = Result(
        name="engine_choice",
        measures="sampling for each shipped run by each engine, one thread's processor time",
        circumstances=where,
        settings={"repeats": options.repeats, "seconds": SECONDS, "rollout": shapes, "left_out": lacking},
        samples=found,
    )
    result.save(headline(found))


if __name__ == "__main__":
    main()
