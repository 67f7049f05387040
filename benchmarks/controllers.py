"""Parallel controllers on one broker against one central controller that carries every payload.

    make bench-controllers                    # 1 to 256 processes, three sizes of body: some twelve minutes
    make bench-controllers ARGS="--quick"     # a look within two minutes; nothing is written

Writes the figures, the tables of `benchmarks/controllers.md` and the picture `docs/images/controllers.png`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.controllers_fleet import ARCHITECTURES, Usage
from benchmarks.controllers_load import Load, Moments, Pace
from benchmarks.controllers_report import draw, write_tables
from benchmarks.message_sizes import parts_of
from benchmarks.result import RESULTS, Result, circumstances, gathered
from broker import codec
from broker.messages import Group

SIZES_KB = (1, 32, 1024)
NUMBERS: Mapping[Pace, tuple[int, ...]] = {
    "saturated": (1, 8, 64, 256),
    "paced": (1, 8, 32, 64, 128, 256),
    "idle": (64, 256),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One architecture under one load."""

    architecture: str
    load: Load

    @property
    def name(self) -> str:
        load = self.load
        return f"{self.architecture}, {load.body_bytes >> 10} KB, {load.pace}, {load.controllers} controllers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one case showed."""

    figures: Mapping[str, float]
    busiest: str
    """Name of the process with the most processor time."""


def measured(case: Case, window_s: float, warm_s: float) -> Found:
    """Start the processes, let them run in, look at them for `window_s`, stop them."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        ARCHITECTURES[case.architecture](Path(name), case.load) as fleet,
    ):
        time.sleep(warm_s + case.load.controllers / 64)
        began, ended, used = fleet.watched(window_s)
        connections = fleet.known[used[0].name].num_fds()
        moments = fleet.stop()
    return found(used, moments, began, ended, connections)


def found(used: Sequence[Usage], moments: Moments, began: float, ended: float, connections: int) -> Found:
    """`used` begins with the process in the middle: the server, or the central controller."""
    busiest = max(used, key=lambda one: one.cpu_s)
    seconds = ended - began
    figures = {
        "middle_share": used[0].cpu_s / seconds,
        "middle_waited_share": used[0].waited_s / seconds,
        "middle_mb": used[0].memory_mb,
        "middle_files": connections,
        "busiest_share": busiest.cpu_s / seconds,
        "busiest_mb": busiest.memory_mb,
        "all_share": sum(one.cpu_s for one in used) / seconds,
        "controller_waited_share": statistics.fmean(
            one.waited_s / seconds for one in used if one.name.startswith("controller")
        ),
    }
    groups = sum(began <= moment < ended for moment in moments.scored.values())
    waits = sorted(
        1e3 * (moment - moments.forwarded[group]) for group, moment in moments.taken.items() if began <= moment < ended
    )
    if groups and waits:
        figures |= {
            "groups_per_s": groups / seconds,
            "handover_p50_ms": statistics.median(waits),
            "handover_p99_ms": waits[int(0.99 * len(waits))],
            "middle_us_per_group": 1e6 * used[0].cpu_s / groups,
            "all_us_per_group": 1e6 * sum(one.cpu_s for one in used) / groups,
        }
    return Found(figures={name: round(value, 4) for name, value in figures.items()}, busiest=busiest.name)


def cases(sizes_kb: Sequence[int], paces: Sequence[Pace], numbers: Callable[[Pace], Sequence[int]]) -> list[Case]:
    """All of them; with nothing to do the size does not matter, so the smallest stands for all."""
    return [
        Case(architecture=architecture, load=Load(controllers=number, body_bytes=size << 10, pace=pace))
        for size in sizes_kb
        for pace in paces
        for number in numbers(pace)
        for architecture in ARCHITECTURES
        if pace != "idle" or size == min(sizes_kb)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 32 controllers, 1 KB and 1 MB, a second each")
    parser.add_argument("--controllers", type=int, nargs="+", help="default: 1 to 256")
    parser.add_argument("--sizes", type=int, nargs="+", help="KB of a group; default: 1 32 1024")
    parser.add_argument("--paces", nargs="+", choices=list(NUMBERS), default=list(NUMBERS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write only the figures, and there")
    given = parser.parse_args()
    sizes = given.sizes or ((1, 1024) if given.quick else SIZES_KB)
    some = given.controllers or ((1, 8, 32) if given.quick else None)
    wanted = cases(sizes, given.paces, lambda pace: some or NUMBERS[pace])
    whole = not (given.quick or given.controllers or given.sizes or len(given.paces) < len(NUMBERS))
    result = run(wanted, given.repeats, (1.0, 0.5) if given.quick else (4.0, 1.5))
    if given.out or whole:
        result.save(headline(result), given.out or RESULTS)
    if whole and not given.out:
        write_tables(result)
        print(draw(result))


def run(wanted: Sequence[Case], repeats: int, seconds: tuple[float, float]) -> Result:
    taken, began = circumstances(), time.perf_counter()
    samples: dict[str, dict[str, list[float]]] = {}
    busiest: dict[str, str] = {}
    for number, case in enumerate(wanted):
        several = [measured(case, *seconds) for _ in range(repeats)]
        samples[case.name] = gathered([one.figures for one in several])
        busiest[case.name] = several[-1].busiest
        print(f"{number + 1}/{len(wanted)} {case.name}: {busiest[case.name]} {several[-1].figures}", flush=True)
    load = wanted[0].load
    return Result(
        name="controllers",
        measures="processes that pull from one broker (parallel) or are sent their work by one that carries all bodies "
        "(central)",
        circumstances=taken,
        settings={
            "seconds": round(time.perf_counter() - began),
            "window_s": seconds[0],
            "busiest": busiest,
            "cases": [
                (case.name, case.architecture, case.load.body_bytes >> 10, case.load.pace, case.load.controllers)
                for case in wanted
            ],
            "in_hand": load.in_hand,
            "paced_groups_per_s_of_a_rollout_controller": load.rate,
            "paced_score_s": load.score_s,
            "batch": load.batch,
            "codec_us": {case.load.body_bytes >> 10: codec_us(case.load.body_bytes) for case in wanted},
        },
        samples=samples,
    )


@cache
def codec_us(size: int, times: int = 200) -> float:
    """Processor time of decoding a group of this size once and encoding it once."""
    parts = parts_of(size)
    group = Group(id="bench", kind="train", prompt=parts.prompt, rollouts=parts.rollouts, scores=parts.scores)
    packed, began = codec.encode_group(group), time.process_time()
    for _ in range(times):
        codec.encode_group(codec.decode_group_bytes(packed))
    return round(1e6 * (time.process_time() - began) / times, 1)


def headline(result: Result) -> str:
    """The most controllers of each size, saturated: groups a second and what the middle spends on one."""
    most: dict[tuple[str, int], tuple[int, str]] = {}
    for name, architecture, size, pace, number in result.settings["cases"]:
        if pace == "saturated" and "groups_per_s" in result.samples[name]:
            most[architecture, size] = max(most.get((architecture, size), (0, "")), (number, name))
    return "; ".join(
        f"{architecture}, {size} KB, {number} controllers: {result.median(name, 'groups_per_s'):,.0f} groups/s, "
        f"{result.median(name, 'middle_us_per_group'):,.0f} µs each in the middle"
        for (architecture, size), (number, name) in most.items()
    )


if __name__ == "__main__":
    sys.exit(main())
