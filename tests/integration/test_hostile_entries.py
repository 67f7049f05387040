"""Strangers write into the streams, bodies and reports of a living run: what they wrote is put aside with the reason,
no role dies of it, nothing is executed, and the books balance.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from broker import embedded_server
from broker.streams import WORK_STREAMS, Keys
from tests.integration.test_launcher import SLOWER, Launched, left_over, made, until

__all__ = ["made"]

Fields = dict[bytes, bytes]

SOUND: Fields = {
    b"group": b"addition/0/999999",
    b"kind": b"train",
    b"task": b"addition",
    b"size": b"4",
    b"floor": b"0",
    b"last_version": b"4",
    b"schema": b"group/1",
}


class Executed:
    """A pickle of it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def entries(mark: Path) -> dict[str, Fields]:
    """Entries nobody could work on, by what is wrong with them."""
    return {
        "nothing of ours": {b"hello": b"world"},
        "another schema": {**SOUND, b"schema": b"group/99"},
        "no number": {**SOUND, b"size": b"four"},
        "a huge number": {**SOUND, b"size": b"9" * 100_000},
        "a huge field": {**SOUND, b"trace": b"x" * 1_000_000, b"floor": b""},
        "another kind": {**SOUND, b"kind": b"__import__('os')"},
        "a path": {**SOUND, b"group": b"../../../etc/passwd"},
        "not a number": {**SOUND, b"reward": b"nan"},
        "no text": {**SOUND, b"group": b"\xff\xfe\x00"},
        "a pickle": {**SOUND, b"group": pickle.dumps(Executed(mark))},
        "a stranger": SOUND,
    }


BODIES: dict[str, Fields] = {
    "rewards holds nan": {b"rewards:f4": struct.pack("<8f", *[float("nan")] * 8)},
    "offsets": {b"offsets:i4": struct.pack("<9i", *range(0, -9, -1))},
    "size is 999999999": {b"size": b"999999999"},
    "MessagePack": {b"body": b"\x81\xa4meta" + b"\x91" * 100_000 + b"\xc0"},
    "is no text": {b"prompt": b"\xff\xfe"},
}
"""Changes of a body, by what the reason will say."""


class Attack:
    """What a stranger with the server's address does to a run."""

    def __init__(self, folder: Path) -> None:
        self.server = redis.Redis.from_url(embedded_server.address(folder / "redis"))
        self.keys = Keys(folder.name)

    def add(self, stream: str, fields: Fields) -> None:
        self.server.xadd(self.keys.stream(stream), cast("Any", fields))

    def open_in(self, stream: str) -> list[bytes]:
        """The last to get there last."""
        lines = cast("dict[bytes, bytes]", self.server.hgetall(self.keys.open))
        entries = {group: line.split()[1] for group, line in lines.items() if line.startswith(f"{stream} ".encode())}
        return sorted(entries, key=lambda group: [int(part) for part in entries[group].split(b"-")])

    def impersonate(self, stream: str) -> None:
        """A second entry of a group that is open there."""
        groups = until(lambda: self.open_in(stream))
        self.add(stream, {**SOUND, b"group": groups[0]})

    def damage(self, change: Fields, spared: Collection[str]) -> str:
        """Change the body of one more group that waits to be trained; its id."""
        group = until(lambda: [one for one in self.open_in("scored") if one.decode() not in spared])[-1].decode()
        self.server.hset(self.keys.group(group), mapping=cast("Any", change))
        return group

    def lines(self, name: str) -> list[dict[bytes, bytes]]:
        found = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.server.xrange(self.keys.stream(name)))
        return [fields for _, fields in found]


@pytest.mark.timeout(120)
def test_a_living_run_outlives_whatever_strangers_write(made: Callable[..., Path], tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    folder = made(
        *SLOWER, "run.steps=40", "train.options={pace_s=0.3}", "train.staleness=4"
    )  # more than are read ahead
    run = Launched(folder)
    run.reach(3)
    attack, before = Attack(folder), run.snapshot()["processes"]
    for stream in WORK_STREAMS:
        for fields in entries(mark).values():
            attack.add(stream, fields)
    attack.impersonate("scored")
    attack.add("weights", {b"version": b"99", b"announcement": json.dumps(outside(tmp_path)).encode()})
    attack.server.xadd(attack.keys.stream("weights"), {"announcement": "no json"})
    damaged: dict[str, str] = {}
    for named, change in BODIES.items():
        damaged[attack.damage(change, damaged)] = named
    strange = 3 * len(entries(mark)) + 1
    until(lambda: len(attack.lines("refused")) == strange, 30)
    refused = attack.lines("refused")
    assert all(line[b"reason"] for line in refused)
    assert max(len(value) for line in refused for value in line.values()) < 2000, "what is kept is bounded"
    assert run.end(90) == 0, run.text()
    reasons = {str(line["group"]): str(line["reason"]) for line in dead(folder)}
    assert all(named in reasons.get(group, named) for group, named in damaged.items()), (reasons, damaged)
    assert len(reasons) >= len(BODIES) - 2, "one or two may have been trained in this very moment"
    after = run.snapshot()["processes"]
    assert {name: report["pid"] for name, report in after.items()} == {
        name: report["pid"] for name, report in before.items()
    }, "no role died"
    assert not mark.exists() and not (tmp_path / "outside").exists()
    assert "books are wrong" not in run.text() and left_over(folder) == []


def outside(folder: Path) -> dict[str, Any]:
    return {"version": 99, "epoch": 1, "path": f"../../../../{folder}/outside", "digest": "0" * 64}


def dead(folder: Path) -> list[dict[str, Any]]:
    with embedded_server.serving(folder / "redis") as url:
        server = redis.Redis.from_url(url, decode_responses=True)
        found = cast("list[Any]", server.xrange(Keys(folder.name).stream("dead")))
        server.close()
    return [fields for _, fields in found]
