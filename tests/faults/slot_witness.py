"""A witness who watches a run on slots all the time and writes down each moment at which an invariant did not hold.

For: one controller per slot (I5), drains that end by their deadline (I7), records whose epochs only rise (I8), and,
from the story of decisions, minima and dwell (I6). Not for: the fate of groups, which `audit` finds in the records.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

import redis
from redis.exceptions import RedisError

from deploy.slot_crew import fleet_of
from tests.faults.slot_runs import OnSlots

LOOK_S = 0.03
LATE_S = 3.0
"""A drain that is seen to last so much longer than it may has overrun: a report is up to a second old, and cores are
busy."""


class Witness:
    """Watches while the block runs; `found` are the moments at which something was wrong."""

    def __init__(self, run: OnSlots, slots: int, drain_s: float) -> None:
        self.run, self.drain_s = run, drain_s
        self.slots = [f"slot-{number}" for number in range(slots)]
        self.found: list[str] = []
        self.epochs: dict[str, int] = {}
        self.obeyed: dict[str, int] = {}
        self.server = ""
        self.looks = 0
        self.drains: set[tuple[str, int]] = set()
        """(slot, epoch) of each drain that was seen."""
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="witness", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self.thread.join(10)

    def watch(self) -> None:
        """consumes: processes, records, reports   produces: `found`   waits for: time   unblocked by: time"""
        with redis.Redis.from_url(self.run.url, decode_responses=True) as client:
            while not self.over.wait(LOOK_S):
                self.looks += 1
                for slot in self.slots:
                    self.one_controller(slot)
                with contextlib.suppress(RedisError):  # a server that is away says nothing wrong
                    self.judge(*self.one_moment(client))

    def one_moment(self, client: redis.Redis) -> tuple[str, list[str | None], dict[str, str]]:
        """(the server, the epoch in each slot's record, the slots' reports), all of one server and one moment."""
        prefix = f"tm:{{{fleet_of(self.run.folder.name)}}}:"
        with client.pipeline(transaction=True) as asked:
            asked.info("server")
            for slot in self.slots:
                asked.hget(f"{prefix}slot:{slot}", "epoch")
            asked.hgetall(f"{prefix}said")
            server, *epochs, said = asked.execute()
        return str(server["run_id"]), epochs, said

    def judge(self, server: str, epochs: list[str | None], said: dict[str, str]) -> None:
        self.on_server(server)
        for slot, epoch in zip(self.slots, epochs, strict=True):
            self.epochs_rise(slot, epoch or "")
        for slot, report in said.items():
            self.drain_ends(slot, json.loads(report))

    def one_controller(self, slot: str) -> None:
        pids = [f"{one.pid} {' '.join(one.argv[2:4])}" for one in self.run.controllers(slot)]
        if len(pids) > 1:
            self.found.append(f"I5: {slot} has {' and '.join(pids)}")

    def on_server(self, server: str) -> None:
        """One that came back without its data knows no order that no slot has heard: nobody can give those back."""
        if server != self.server:
            self.server, self.epochs = server, dict(self.obeyed)

    def epochs_rise(self, slot: str, epoch: str) -> None:
        """A server that lost its records has none for a moment: the slot gives it back what it knows."""
        if epoch and int(epoch) < self.epochs.get(slot, 0):
            self.found.append(f"I8: {slot} went from epoch {self.epochs[slot]} to {epoch}")
        self.epochs[slot] = max(self.epochs.get(slot, 0), int(epoch or 0))

    def drain_ends(self, slot: str, report: dict[str, Any]) -> None:
        self.obeyed[slot] = max(self.obeyed.get(slot, 0), int(report["epoch"]))
        if report["state"] == "draining":
            self.drains.add((slot, int(report["epoch"])))
            if report["for_s"] > self.drain_s + LATE_S:
                self.found.append(f"I7: {slot} has drained for {report['for_s']} s")


def broken_rules(story: list[dict[str, Any]], dwell_s: float, minima: dict[str, int]) -> list[str]:
    """I6 from the decisions of a run, oldest first: moves that came too early or took a pool below its min. A slot that
    has nothing to do may leave at any time."""
    found: list[str] = []
    last: dict[str, float] = {}
    for decision in story:
        taken = Counter(move["source"] for move in decision["moves"])
        for pool, least in minima.items():
            if taken[pool] and decision["split"][pool] - taken[pool] < least:
                found.append(f"I6: {pool} was left with {decision['split'][pool] - taken[pool]} of {least} slots")
        for move in decision["moves"]:
            stayed = decision["at"] - last.get(move["slot"], 0.0)
            if move["source"] and not move["idle"] and stayed < dwell_s:
                found.append(f"I6: {move['slot']} was moved after {stayed:.2f} s: {decision['sentence']}")
            last[move["slot"]] = decision["at"]
    return found
