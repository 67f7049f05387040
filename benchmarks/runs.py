"""How fast whole runs go: `python -m benchmarks.runs` launches `addition` and `long-tail` to their stop rule.

Speeds are over the time from the first trained version to the last, waits and checkpoints included. The first launch of
each run makes its warm start, is not counted, and trains one step; the others reuse it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.result import Result, circumstances, gathered

STEPS = {"addition": 300, "long-tail": 150}
"""Run → versions at most, so that a repeat takes a minute or two; the stop rule is the run's own."""


def measured(run: LaunchedRun) -> dict[str, float]:
    """One launch's figures."""
    report, steps = run.report, run.steps
    trained = steps[1:]
    seconds = steps[-1]["at"] - steps[0]["at"]
    figures = {
        "completions_per_s": sum(step["rollouts"] for step in trained) / seconds,
        "tokens_per_s": sum(step["tokens"] for step in trained) / seconds,
        "steps_per_s": len(trained) / seconds,
        "steps": len(steps),
        "accuracy_start": report["held_out_accuracy"]["start"],
        "accuracy_end": report["held_out_accuracy"]["end"],
        "stop_rule_reached": float(reached(report["finished"])),
        "command_to_last_measurement_s": run.evaluations[-1]["at"] - run.typed_at,
        "command_to_prompt_s": run.ended_at - run.typed_at,
        "staleness_mean": report["staleness"]["mean"],
        **{f"busy_{role}": share for role, share in sorted(report["busy_share"].items())},
    }
    return {name: round(value, 3) for name, value in figures.items()}


def reached(finished: str) -> bool:
    """Whether the run's last word is its stop rule rather than its number of steps."""
    return bool(finished) and not finished.startswith("trained ")


def samples_of(name: str, root: Path, steps: int, repeats: int) -> list[dict[str, float]]:
    launch(root, name, ["run.steps=1"])
    found: list[dict[str, float]] = []
    for _ in range(repeats):
        found.append(measured(launch(root, name, [f"run.steps={steps}"])))
        print(name, found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", nargs="+", choices=sorted(STEPS), default=sorted(STEPS))
    options = parser.parse_args()
    before = circumstances()
    with tempfile.TemporaryDirectory() as root:
        samples = {name: samples_of(name, Path(root), STEPS[name], options.repeats) for name in options.runs}
    result = Result(
        name="runs",
        measures="whole runs with a warm start at hand, from the command to the stop rule",
        circumstances=before,
        settings={"steps at most": {name: STEPS[name] for name in options.runs}, "repeats": options.repeats},
        samples={name: gathered(found) for name, found in samples.items()},
    )
    result.save("; ".join(headline(result, name) for name in options.runs))


def headline(result: Result, name: str) -> str:
    def median(figure: str) -> float:
        return result.median(name, figure)

    busy = ", ".join(f"{role} {median(f'busy_{role}'):.0%}" for role in ("trainer", "rollout"))
    return (
        f"`{name}` {median('completions_per_s'):,.0f} completions/s, {median('tokens_per_s'):,.0f} tokens/s, "
        f"{median('steps_per_s'):.2f} steps/s, busy {busy}, "
        f"{median('command_to_last_measurement_s'):.0f} s to accuracy {median('accuracy_end'):.2f}"
    )


if __name__ == "__main__":
    main()
