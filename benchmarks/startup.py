"""Where the time goes before the first optimizer step of `addition`: `python -m benchmarks.startup`.

`cold`: no warm start to reuse. `second run`: the same command again. Every moment is read from the run's own logs and
counted from the command's start. `imports`: what each process must load before it can do anything, alone on the
machine, library after library.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.result import Result, circumstances, gathered

OVERRIDES = ["run.steps=1"]
"""The first step is what is waited for."""

LIMIT_S = 20.0
"""A second run has its first optimizer step by then."""

PROCESSES = {
    "launcher": ("deploy.cli", "deploy.local"),
    "rollout": ("producers.__main__", "torch", "producers.engines.torch"),
    "feeder": ("producers.__main__", "producers.feeder"),
    "reward": ("consumers.__main__", "consumers.reward_consumer", "consumers.rewards.rule_pool"),
    "trainer": ("consumers.__main__", "torch", "transformers", "deepspeed", "consumers.learners.deepspeed"),
}
"""Process → what it imports, in its order."""

CLOCK = """
import importlib, sys, time
for name in sys.argv[1:]:
    began = time.perf_counter()
    importlib.import_module(name)
    print("took", name, time.perf_counter() - began)
"""


def moments(run: LaunchedRun) -> dict[str, float]:
    """Seconds from the command's start to each moment."""
    first = run.steps[0]
    at = {
        "launcher's first output": run.first_output_at,
        "server answers": run.logged_at("launcher", "server answers"),
        "model there, roles started": run.logged_at("launcher", "processes started"),
        **{f"{role} begun": run.logged_at(f"{role}-0", "begun") for role in ("feeder", "reward", "rollout", "trainer")},
        "reward loaded": run.logged_at("reward-0", "reward loaded"),
        "prompts read": run.logged_at("feeder-0", "prompts read"),
        "engine loaded": run.logged_at("rollout-0", "engine loaded"),
        "learner loaded": run.logged_at("trainer-0", "learner loaded"),
        "run open": run.logged_at("trainer-0", "run open"),
        "version 0 served": run.logged_at("rollout-0", "serving", version=0),
        "first rollouts": run.logged_at("rollout-0", "first rollouts"),
        "first batch complete": first["at"] - first["train_s"] - first["publish_s"],
        "first optimizer step done": first["at"] - first["publish_s"],
        "version 1 published": first["at"],
    }
    return {f"{name} (s)": round(moment - run.typed_at, 3) for name, moment in at.items()}


def imports() -> dict[str, float]:
    """Seconds each import takes after those before it, per process."""
    found: dict[str, float] = {}
    for process, modules in PROCESSES.items():
        answer = subprocess.run([sys.executable, "-c", CLOCK, *modules], capture_output=True, text=True, check=True)
        for line in answer.stdout.splitlines():
            if line.startswith("took "):  # libraries print too
                _, module, seconds = line.split()
                found[f"{process}: {module} (s)"] = round(float(seconds), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    before = circumstances()
    cold: list[dict[str, float]] = []
    second: list[dict[str, float]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as root:
            for samples in (cold, second):
                samples.append(moments(launch(Path(root), "addition", OVERRIDES)))
                print(samples[-1], flush=True)
    result = Result(
        name="startup",
        measures="start-up of `addition` by part: from typing the command to the first optimizer step",
        circumstances=before,
        settings={"run": "addition", "overrides": OVERRIDES, "repeats": repeats, "limit_s": LIMIT_S},
        samples={
            "cold": gathered(cold),
            "second run": gathered(second),
            "imports": gathered([imports() for _ in range(repeats)]),
        },
    )
    result.save(headline(result))


def headline(result: Result) -> str:
    cold, second = (result.median(case, "first optimizer step done (s)") for case in ("cold", "second run"))
    roles = result.median("second run", "model there, roles started (s)")
    learner = result.median("second run", "learner loaded (s)")
    return (
        f"first optimizer step {cold:.1f} s cold, {second:.1f} s in a second run (limit {LIMIT_S:g}): "
        f"roles started {roles:.1f} s, learner loaded {learner:.1f} s"
    )


if __name__ == "__main__":
    main()
