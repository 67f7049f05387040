"""What a person reads at the end of a run: better by how much, in whose words, and what to try next.

For: the last lines of `tidemill run` and `resume`. Not for: numbers for machines (`report`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from broker.archive_index import GroupIndex
from deploy.plain_text import plain
from deploy.run_files import shipped_runs

SAMPLES = 3


def closing_lines(folder: Path, report: Mapping[str, Any], curve: Path | None) -> Iterator[str]:
    """Accuracy before and after, sampled answers, the curve, and the next commands."""
    start, end = report["held_out_accuracy"]["start"], report["held_out_accuracy"]["end"]
    if start is not None:
        yield f"held-out accuracy {start:.3f} → {end:.3f}"
    yield f"{report['steps']} steps in {report['seconds'] or 0:.0f} s" + speeds(report)
    yield from answer_lines(answers(folder))
    if curve is not None:
        yield f"curve: {curve}"
    yield "next:"
    yield from next_commands(folder, report)


def next_commands(folder: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """What a person may want to type now, most useful first."""
    if not report["finished"]:
        yield f"  tidemill resume {folder.name}"
    if buried := report["books"]["buried"] + report["evaluation_books"]["buried"]:
        yield f"  tidemill inspect dead {folder.name}    # why {buried:,} groups are buried"
    yield f"  tidemill dashboard {folder.name}    # every answer, in a browser"
    yield f"  tidemill inspect ledger {folder.name}"
    if name := shipped_name(folder):
        yield f"  tidemill run {name} train.staleness=4 run.seed=1"


def shipped_name(folder: Path) -> str:
    """Of the shipped run it is, or nothing; folders are called NAME-DATE-TIME."""
    return next((name for name in shipped_runs() if folder.name.startswith(f"{name}-")), "")


def speeds(report: Mapping[str, Any]) -> str:
    if report["completions_per_s"] is None:
        return ""
    staleness = report["staleness"]
    late = "" if staleness["mean"] is None else f", staleness {staleness['mean']:.2f} (largest {staleness['max']})"
    return f", {report['completions_per_s']:,.0f} completions/s{late}"


def answers(folder: Path) -> list[dict[int, tuple[str, str, str]]]:
    """For a few held-out prompts: version → (prompt, first answer, right answer), in order."""
    found: dict[int, dict[int, tuple[str, str, str]]] = {}
    with GroupIndex(folder / "groups") as index:
        index.refresh()
        for row in index.search(kind="eval", limit=-1).rows:  # SQLite: -1 is no limit
            _, version, place = row.id.split("/")
            closed = index.read(row.id) if int(place) < SAMPLES else None
            if closed and closed.group.rollouts is not None:
                prompt = closed.group.prompt
                shown = (prompt.text, closed.group.rollouts.texts[0], prompt.answer)
                found.setdefault(int(place), {})[int(version)] = shown
    return [dict(sorted(found[place].items())) for place in sorted(found)]


def answer_lines(found: list[dict[int, tuple[str, str, str]]]) -> Iterator[str]:
    for versions in found:
        first, last = min(versions), max(versions)
        prompt, before, right = versions[first]
        expected = f"   (right: {right})" if right else ""
        yield f"  {end_of(prompt)}   before: {one_line(before)}   after: {one_line(versions[last][1])}{expected}"


def one_line(text: str, longest: int = 60) -> str:
    """On one line, and not too much of it."""
    flat = plain(" ".join(text.split()))
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def end_of(prompt: str, longest: int = 60) -> str:
    """On one line, the part the answer goes on from: long prompts often begin alike."""
    return one_line(plain(prompt)[::-1], longest)[::-1]
