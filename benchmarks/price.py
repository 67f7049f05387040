"""What the guarantees cost: whole runs against the barest loop of the same parts: `python -m benchmarks.price`.

Each repeat launches a shipped run and then lets the two forms of `bare_loop` train the same thing. Speeds and processor
seconds are over the last versions of each, the same ones; neither side measures accuracy on the way. The faster form is
the yardstick.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.bare_loop import FORMS
from benchmarks.launched_run import launch
from benchmarks.price_picture import draw
from benchmarks.processor_watch import ROLE_WORDS, ProcessorWatch
from benchmarks.result import RESULTS, Result, circumstances, gathered
from deploy.records import Record, records
from scheduler.controller_process import thread_environment

OVERRIDES = ("run.stop_when=''", "prompts.eval={size=0}")
LONGEST_S = 300
"""Of one bare loop."""
PRODUCT = "tidemill"
ROLES = {**ROLE_WORDS, "bare_loop": "trainer", "multiprocessing.spawn": "rollout"}
"""Words of a command line → role."""

PARTS = ("compute", "train", "publish", "wait")
"""Of a trainer's time; `train` holds `compute`, which is the learner's alone."""

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    versions: int
    last: int
    """Versions at the end that count: by then queues are full and processes warm."""


CASES = {"long-tail": Case(versions=45, last=35), "addition": Case(versions=130, last=100)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for what was found")
    options = parser.parse_args()
    before = circumstances()
    found: dict[str, dict[str, list[Figures]]] = {name: {} for name in options.runs}
    with tempfile.TemporaryDirectory() as root:
        for name in options.runs:
            launch(Path(root), name, ["run.steps=1", *OVERRIDES])
        for _ in range(options.repeats):
            for name in options.runs:
                for side, figures in one_round(Path(root), name, CASES[name]).items():
                    found[name].setdefault(side, []).append(figures)
    samples = {f"{name}, {side}": gathered(rows) for name, sides in found.items() for side, rows in sides.items()}
    samples |= {f"{name}, price": gathered(prices(sides)) for name, sides in found.items()}
    result = Result(
        name="price",
        measures="whole runs against the barest loop of the same parts: no server, ledger, fsync, manifest, archive",
        circumstances=before,
        settings={name: asdict(CASES[name]) | {"yardstick": yardstick(found[name])} for name in options.runs},
        samples=samples,
    )
    result.save("; ".join(headline(result, name) for name in options.runs), options.results)
    draw(result, options.runs, options.results / "price.png")


def one_round(root: Path, name: str, case: Case) -> dict[str, Figures]:
    """The run, and both forms of the bare loop on its model and settings."""
    with ProcessorWatch() as watch:
        run = launch(root, name, [f"run.steps={case.versions}", *OVERRIDES])
    found = {PRODUCT: measured(run.steps, watch, case)}
    print(name, PRODUCT, found[PRODUCT], flush=True)
    for form in FORMS:
        found[form] = bare(run.folder, form, case)
        print(name, form, found[form], flush=True)
    return found


def bare(folder: Path, form: str, case: Case) -> Figures:
    into = folder / f"bare-{form}.jsonl"
    command = [sys.executable, "-c", "from benchmarks.bare_loop import main; main()", folder, "--form", form]
    with ProcessorWatch() as watch:
        done = subprocess.run(
            [*command, "--versions", str(case.versions), "--into", into],
            check=False,
            env={**os.environ, **thread_environment(1)},
            timeout=LONGEST_S,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"the bare loop ended with exit code {done.returncode}; it said:\n{done.stderr[-3000:]}")
    return measured(records(into), watch, case)


def measured(lines: Sequence[Record], watch: ProcessorWatch, case: Case) -> Figures:
    """Figures of the last versions: per second, per group, and shares of the trainer's time."""
    first, *rest = lines[-case.last :]
    seconds, groups = rest[-1]["at"] - first["at"], sum(line["groups"] for line in rest)
    roles = dict.fromkeys(ROLES.values(), 0.0) | watch.spent(first["at"], rest[-1]["at"], ROLES)
    shares = {part: sum(line[f"{part}_s"] for line in rest) / seconds for part in PARTS}
    found: Figures = {
        "groups_per_s": groups / seconds,
        "processor_ms_a_group": 1000 * sum(roles.values()) / groups,
        **{f"{role}_processor_ms_a_group": 1000 * spent / groups for role, spent in roles.items()},
        **{f"trainer_{part}_share": share for part, share in shares.items()},
        "trainer_rest_share": 1 - shares["train"] - shares["publish"] - shares["wait"],
        "tokens_a_group": sum(line["tokens"] for line in rest) / groups,
        "reward_mean": statistics.mean(line["reward"] for line in rest),
        "staleness_mean": statistics.mean(line["staleness"]["mean"] for line in rest),
        "staleness_max": max(line["staleness"]["max"] for line in rest),
        **of_the_sampler(first, rest[-1], seconds),
    }
    return {name: round(value, 4) for name, value in found.items()}


def of_the_sampler(first: Mapping[str, Any], last: Mapping[str, Any], seconds: float) -> Figures:
    """The bare sampler tells how long it was at work; a run's processes tell Prometheus."""
    if "sampler_busy_s" not in first:
        return {}
    return {"sampler_busy_share": (last["sampler_busy_s"] - first["sampler_busy_s"]) / seconds}


def yardstick(sides: Mapping[str, Sequence[Figures]]) -> str:
    """The faster form."""
    return max(FORMS, key=lambda form: statistics.median(one["groups_per_s"] for one in sides[form]))


def prices(sides: Mapping[str, Sequence[Figures]]) -> list[Figures]:
    """The run against the yardstick, repeat by repeat."""
    return [
        {
            "slower_share": 1 - ours["groups_per_s"] / bare["groups_per_s"],
            "more_processor_share": ours["processor_ms_a_group"] / bare["processor_ms_a_group"] - 1,
        }
        for ours, bare in zip(sides[PRODUCT], sides[yardstick(sides)], strict=True)
    ]


def headline(result: Result, name: str) -> str:
    form = result.settings[name]["yardstick"]
    ours, bare = (result.median(f"{name}, {side}", "groups_per_s") for side in (PRODUCT, form))
    slower, more = (result.median(f"{name}, price", what) for what in ("slower_share", "more_processor_share"))
    spent = [result.median(f"{name}, {side}", "processor_ms_a_group") for side in (PRODUCT, form)]
    return (
        f"`{name}` {ours:,.0f} groups/s, the bare loop ({form}) {bare:,.0f}: {slower:.1%} slower; "
        f"{spent[0]:.2f} processor ms a group against {spent[1]:.2f}: {more:.0%} more"
    )


if __name__ == "__main__":
    main()
