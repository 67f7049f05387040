"""What a run came to, from its folder alone: the server may be gone.

For: `report.json` and `tidemill report`. Not for: drawing (`curve`) or telling a person (`closing`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.observer import saved_snapshot
from deploy.records import Record, evaluations_of, steps_of
from deploy.snapshot import books_of, per_second
from deploy.whole_file import write_whole

REPORT_FILE = "report.json"


def make_report(folder: Path) -> dict[str, Any]:
    """The numbers of a run, whole or still going; what is not known yet is None."""
    snapshot = saved_snapshot(folder)
    steps, measured = list(steps_of(folder).values()), list(evaluations_of(folder).values())
    counts: Mapping[str, int] = snapshot.get("counts", {})
    return {
        "run": folder.name,
        "finished": snapshot.get("finished", ""),
        "steps": newest_version(snapshot, steps),
        "seconds": snapshot.get("elapsed_s"),
        "held_out_accuracy": first_and_last(measured, "accuracy"),
        "reward": first_and_last(steps, "reward"),
        "completions_per_s": per_second(steps, "rollouts"),
        "tokens_per_s": per_second(steps, "tokens"),
        "training_seconds": sum(step["seconds"] for step in steps),
        "staleness": staleness_of(steps),
        "books": books_of(counts, "train"),
        "evaluation_books": books_of(counts, "eval"),
        "busy_share": snapshot.get("busy_share", {}),
    }


def newest_version(snapshot: Mapping[str, Any], steps: Sequence[Record]) -> int:
    """Versions trained; a trainer killed between a commit and its record leaves no line of that step."""
    return max(0, snapshot.get("version", 0), *(step["version"] for step in steps))


def first_and_last(found: Sequence[Record], name: str) -> dict[str, float | None]:
    return {"start": found[0][name] if found else None, "end": found[-1][name] if found else None}


def staleness_of(steps: Sequence[Record]) -> dict[str, float | None]:
    """Over all trained groups: mean, 95th percentile, largest; in versions."""
    counts: dict[int, int] = {}
    for step in steps:
        for value, number in step["staleness"].get("counts", {}).items():
            counts[int(value)] = counts.get(int(value), 0) + number
    groups = sum(step["groups"] for step in steps)
    return {
        "mean": sum(step["staleness"]["mean"] * step["groups"] for step in steps) / groups if groups else None,
        "p95": percentile(counts.items(), 0.95) if counts else None,
        "max": max((step["staleness"]["max"] for step in steps), default=None),
    }


def percentile(counts: Iterable[tuple[int, int]], share: float) -> int:
    """The smallest value that at least `share` of the counted reach or stay below."""
    ordered = sorted(counts)
    wanted, seen = share * sum(number for _, number in ordered), 0
    for value, number in ordered:
        seen += number
        if seen >= wanted:
            return value
    return ordered[-1][0]


def save_report(folder: Path, report: Mapping[str, Any]) -> Path:
    path = folder / REPORT_FILE
    write_whole(path, json.dumps(report, indent=1) + "\n")
    return path
