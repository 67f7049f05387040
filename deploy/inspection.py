"""`tidemill inspect`: the run's records as rows: ledger, dead, weights, open groups; and all runs.

For: reading what the server holds, as it stands. Not for: changing it, or streams in the raw (`tidemill redis`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Self, cast

from broker.streams import Keys
from deploy.asking import asking, looking_client
from deploy.report import make_report
from deploy.run_folder import launcher_pid, run_folders
from deploy.slot_crew import fleet_of

Row = dict[str, Any]
NEWEST = 1000
"""Most rows of a stream."""
NUMBER = re.compile(r"[\d.]+")


class Records:
    """What one run's server holds, as text."""

    def __init__(self, url: str, run: str) -> None:
        self.url = url
        self.client = looking_client(url, decode_responses=True)
        self.keys = Keys(run)

    @classmethod
    def reached(cls, url: str, run: str) -> Self:
        """Once the server has answered. Raises Unavailable."""
        server = cls(url, run)
        with asking(url):
            server.client.ping()
        return server

    def hash(self, key: str) -> dict[str, str]:
        return cast("dict[str, str]", self.client.hgetall(key))

    def newest(self, stream: str, count: int = NEWEST) -> list[tuple[str, dict[str, str]]]:
        """The newest entries of a stream, oldest first. Raises Unavailable."""
        with asking(self.url):
            found = self.client.xrevrange(self.keys.stream(stream), count=count)
        return cast("list[tuple[str, dict[str, str]]]", found)[::-1]


def ledger(server: Records) -> list[Row]:
    """One row per trained version that the server still remembers."""
    return ledger_rows(server.newest("ledger"))


def ledger_rows(entries: Iterable[tuple[str, Mapping[str, str]]]) -> list[Row]:
    rows: list[Row] = []
    for _, line in entries:
        groups = line["groups"].split()
        names = ("version", "epoch", "parent_epoch")
        rows.append({**{name: int(line[name]) for name in names}, "digest": line["digest"][:8], "groups": groups})
    return rows


def dead(server: Records, count: int = NEWEST) -> list[Row]:
    """One row per buried group, with the reason; the newest `count`."""
    first = ("group", "reason", "stage", "attempt")
    return [
        {"entry": entry, **{name: line.get(name, "") for name in first}, **line}
        for entry, line in server.newest("dead", count)
    ]


def why_buried(rows: list[Row]) -> list[Row]:
    """Lines of `dead` as a person reads them."""
    return [
        {
            "group": row["group"],
            "stage": row["stage"],
            "attempts": int(row["attempt"] or 0) + 1,
            "reason": row["reason"],
        }
        for row in rows
    ]


def weights(server: Records) -> list[Row]:
    """One row per version that may be served, with its holders."""
    live = server.hash(server.keys.state).get("version")
    holders: dict[str, list[str]] = {}
    for member in cast("list[str]", server.client.zrange(server.keys.holds, 0, -1)):
        version, _, holder = member.partition(" ")
        holders.setdefault(version, []).append(holder)
    rows: list[Row] = []
    for version, announced in sorted(server.hash(server.keys.versions).items(), key=lambda item: int(item[0])):
        facts = json.loads(announced)
        row = {"version": int(version), "epoch": facts["epoch"], "path": facts["path"], "digest": facts["digest"][:8]}
        rows.append({**row, "live": version == live, "held_by": holders.get(version, [])})
    return rows


def open_groups(server: Records) -> list[Row]:
    """One row per open group: where its one live entry is, and how old it may get."""
    return open_rows(server.hash(server.keys.open))


def open_rows(lines: Mapping[str, str]) -> list[Row]:
    names = ("stream", "entry", "kind", "floor", "last_version")
    return [
        {"group": group, **dict(zip(names, line.split(" "), strict=True))}
        for group, line in sorted(lines.items(), key=lambda item: item[1])
    ]


def decisions(server: Records) -> list[Row]:
    """One row per decision of the scheduler, oldest first, with the numbers it stood on."""
    return [decision_row(one) for one in recorded_decisions(server, NEWEST)]


def recorded_decisions(server: Records, newest: int) -> list[dict[str, Any]]:
    """The newest decisions as the scheduler wrote them down, oldest first."""
    stream = Keys(fleet_of(server.keys.run)).stream("decisions")
    found = cast("list[tuple[str, dict[str, str]]]", server.client.xrevrange(stream, count=newest))[::-1]
    return [json.loads(fields["decision"]) for _, fields in found]


def decision_row(decision: Row) -> Row:
    at = datetime.fromtimestamp(decision["at"], UTC)
    moves = [f"{move['slot']} {move['source'] or 'vacant'} → {move['target']}" for move in decision["moves"]]
    facts = {name: decision[name] for name in ("split", "wanted", "numbers")}
    return {"at": f"{at:%H:%M:%S}", "decision": decision["sentence"], "moves": moves, **facts}


def story(rows: list[Row]) -> list[Row]:
    """Decisions as a person reads them: those that say the same again, but for a number, are told once."""
    told: list[Row] = []
    for same, group in groupby(rows, key=lambda row: (NUMBER.sub("", row["decision"]), row["split"], row["wanted"])):
        alike = list(group)
        _, split, wanted = same
        told.append(
            {
                "at (UTC)": alike[0]["at"],
                "times": len(alike),
                "slots": in_words(split, wanted),
                "decision": alike[-1]["decision"],
                "moves": ", ".join(move for row in alike for move in row["moves"]),
            }
        )
    return told


def in_words(split: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """`rollout 3 → 2, judge 0 → 1, train 1`."""
    changes = {pool: f" → {wanted[pool]}" for pool, count in split.items() if wanted.get(pool, count) != count}
    return ", ".join(f"{pool} {count}{changes.get(pool, '')}" for pool, count in split.items())


def runs(root: Path) -> list[Row]:
    """One row per run folder, oldest first."""
    return [run_row(folder) for folder in run_folders(root)]


def run_row(folder: Path) -> Row:
    report = make_report(folder)
    begun = datetime.fromtimestamp((folder / "settings.json").stat().st_mtime, UTC)
    state = "running" if launcher_pid(folder) else report["finished"] or "stopped"
    accuracy = report["held_out_accuracy"]["end"]
    return {
        "run": folder.name,
        "begun": f"{begun:%Y-%m-%d %H:%M} UTC",
        "steps": report["steps"],
        "accuracy": accuracy,
        "state": state,
    }


IN_WORDS: dict[str, Callable[[list[Row]], list[Row]]] = {"decisions": story, "dead": why_buried}
"""Views that show a person less, or otherwise, than a program."""

VIEWS: dict[str, Callable[[Records], list[Row]]] = {
    "ledger": ledger,
    "dead": dead,
    "weights": weights,
    "open": open_groups,
    "decisions": decisions,
}
