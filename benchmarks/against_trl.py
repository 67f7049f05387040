"""The same task trained by TRL's `GRPOTrainer` and by Tidemill, in turn: `python -m benchmarks.against_trl`.

Same warm start, prompts in the same order, rewards, completions a step, optimizer, and both cores. Speed is over the
time from the first step to the last, without measuring accuracy: TRL's time for that is left out, and Tidemill, which
measures beside its training, runs once more for as many steps without it. The time to the goal is that of the run that
measures; only TRL's is without measuring. Tidemill's checkpoints, versions and books are always counted.
`skipped`: groups whose rewards are all the same take no part in the passes (TRL cannot do that by itself, a subclass
does it for it); `all`: they do, on both sides.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.peer_runs import PeerRun, environment, peer_run
from benchmarks.result import Result, circumstances, gathered

GOAL = 0.9
"""Held-out accuracy that is waited for."""
ALL = "train.options={without_signal='train'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task."""

    run: str
    """A shipped run."""
    steps: int
    rows: int
    """Completions in one of TRL's passes: as many as Tidemill's token budget allows."""
    overrides: Sequence[str]


CASES = {
    "addition": Case(run="addition", steps=400, rows=512, overrides=[f"run.stop_when='eval.accuracy >= {GOAL}'"]),
    "32 tokens": Case(
        run="long-tail",
        steps=40,
        rows=384,
        overrides=[
            "prompts.options={longest=31,mean=12.0}",
            "prompts.eval={size=0}",
            "run.stop_when=''",
            "rollout.max_tokens=32",
        ],
    ),
    "96 tokens": Case(
        run="long-tail",
        steps=20,
        rows=128,
        overrides=[
            "prompts.options={longest=95,mean=24.0}",
            "prompts.eval={size=0}",
            "run.stop_when=''",
            "rollout.max_tokens=96",
        ],
    ),
    "SmolLM2-135M": Case(
        run="smollm2-sentiment", steps=8, rows=16, overrides=["prompts.eval={size=0}", "run.stop_when=''"]
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    before, python = circumstances(), environment()
    samples: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as root:
        for seed in range(options.seeds):
            for name in options.cases:
                for skip, word in ((True, "skipped"), (False, "all")):
                    found = compared(CASES[name], seed, skip, Path(root), python)
                    samples.setdefault(f"{name}, {word}", []).append(found)
                    print(f"{name}, {word}, seed {seed}: {found}", flush=True)
    result = Result(
        name="against_trl",
        measures="the same task by TRL's GRPOTrainer and by Tidemill, both on all cores",
        circumstances=before,
        settings={
            "cases": {name: asdict(CASES[name]) for name in options.cases},
            "seeds": options.seeds,
            "goal": GOAL,
            "peer": (Path(__file__).parent / "peers" / "trl.txt").read_text().splitlines()[1:],
        },
        samples={name: gathered(found) for name, found in samples.items()},
    )
    result.save("; ".join(headline(result, name) for name in samples))


def compared(case: Case, seed: int, skip: bool, root: Path, python: Path) -> dict[str, float]:
    """One seed on both sides, one after the other, from the same warm start."""
    overrides = [*case.overrides, f"run.seed={seed}"]
    warm = launch(root, case.run, [*overrides, "run.steps=1"])
    theirs = figures_of_peer(
        peer_run(python, warm.folder, steps=case.steps, rows=case.rows, stop_at=GOAL, skip_dead=skip),
        completions=warm.steps[0]["rollouts"],
    )
    ours = ours_of(case, root, [*overrides, *([] if skip else [ALL])])
    ratios = {f"{name}_ratio": ours[name] / theirs[name] for name in ours.keys() & theirs.keys()}
    named = {
        f"{name}, {who}": value for who, side in (("tidemill", ours), ("trl", theirs)) for name, value in side.items()
    }
    return {name: round(value, 3) for name, value in {**named, **ratios}.items()}


def ours_of(case: Case, root: Path, overrides: Sequence[str]) -> dict[str, float]:
    """Our side, its speed without measuring accuracy."""
    run = launch(root, case.run, [*overrides, f"run.steps={case.steps}"])
    found = figures(run)
    if run.evaluations:
        unmeasured = ["prompts.eval={size=0}", "run.stop_when=''", f"run.steps={len(run.steps)}"]
        found["completions_per_s"] = figures(launch(root, case.run, [*overrides, *unmeasured]))["completions_per_s"]
    return found


def figures(run: LaunchedRun) -> dict[str, float]:
    """Ours. The first step begins when the first version is there to be sampled from."""
    steps = run.steps
    began_at = run.logged_at("trainer-0", "run open")
    found = {
        "completions_per_s": sum(step["rollouts"] for step in steps[1:]) / (steps[-1]["at"] - steps[0]["at"]),
        "first_step_s": steps[0]["at"] - run.typed_at,
    }
    measured = [(line["accuracy"], line["at"]) for line in run.evaluations]
    return found | to_goal(measured, began_at, run.typed_at)


def figures_of_peer(run: PeerRun, completions: int) -> dict[str, float]:
    (first, from_s), (last, to_s) = run.steps[0], run.steps[-1]
    found = {
        "completions_per_s": (last - first) * completions / (to_s - from_s),
        "first_step_s": from_s - run.started_at,
    }
    return found | to_goal(run.accuracies, run.began_at, run.started_at)


def to_goal(measured: Sequence[tuple[float, float]], began_at: float, started_at: float) -> dict[str, float]:
    """Seconds to the goal, from the first step and from the start of the process; nothing where it is not measured."""
    if not measured:
        return {}
    reached = [at for accuracy, at in measured if accuracy >= GOAL]
    if not reached:
        raise RuntimeError(f"the goal of {GOAL} was not reached: {measured[-1][0]} at last; give more steps")
    return {"goal_from_first_step_s": reached[0] - began_at, "goal_from_start_s": reached[0] - started_at}


def headline(result: Result, name: str) -> str:
    ratio = result.median(name, "completions_per_s_ratio")
    words = f"{name}: {ratio:.2f} of TRL's completions/s"
    if "goal_from_first_step_s_ratio" in result.samples[name]:
        words += f", {result.median(name, 'goal_from_first_step_s_ratio'):.2f} of its time to {GOAL}"
    return words


if __name__ == "__main__":
    main()
