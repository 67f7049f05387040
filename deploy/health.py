"""`python -m deploy.health PROCESS`: whether a process of a cluster brings the run forward; exit code and a sentence.

For: health checks of containers, and of anything else that asks a command. Not for: people (`tidemill status`). Health
is progress: a process that reports, holds work and has finished none of it for `STILL_S` is not healthy, however alive
it is; one that has nothing to do is. What was seen last lies in a file, because each question is a process of its own;
so little more than the server's client is imported.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from broker.fleet import FLEET, FLEET_VARIABLE
from broker.reports import SILENT_S
from broker.settings import URL_VARIABLE
from broker.streams import Keys
from deploy.asking import looking_client
from deploy.place import place_of
from deploy.whole_file import write_whole

STILL_S = 120.0
"""Longest that work in hand may take without anything being finished; as `run.watchdog_s`."""
LOOK_S = 60.0
"""A scheduler decides every `scheduler.every_s`; the launcher looks twice a second."""

Facts = Mapping[str, Any]
"""What a process says of itself: `age_s`, `stage`, `moves` (anything that changes when it brings the run forward),
`holds` (whether it has work in hand)."""


def judged(facts: Facts, before: Facts, now: float) -> tuple[str, dict[str, Any]]:
    """What is wrong (empty: nothing), and what to remember until the next question; pure."""
    same = before.get("moves") == facts["moves"] and bool(before)
    memory = {"moves": facts["moves"], "since": before["since"] if same and facts["holds"] else now}
    if facts["age_s"] > SILENT_S:
        return f"has not reported for {facts['age_s']:.0f} s, last {facts['stage']!r}", memory
    if facts.get("wrong"):
        return str(facts["wrong"]), memory
    if now - memory["since"] > STILL_S:
        return f"has finished nothing for {now - memory['since']:.0f} s, says {facts['stage']!r}", memory
    return "", memory


class Cluster:
    """What the server says of the fleet and of the run that it works for."""

    def __init__(self, url: str, fleet: str) -> None:
        self.client: Any = looking_client(url, decode_responses=True)
        self.fleet = Keys(fleet).prefix

    @property
    def served(self) -> dict[str, str]:
        return self.client.hgetall(self.fleet + "run")

    def now(self) -> float:
        seconds, micros = self.client.time()
        return seconds + micros / 1e6

    def role(self, name: str) -> Facts | None:
        """A process by its heartbeat; None when there is no run, or it has not reported: it waits for one."""
        if not (served := self.served):
            return None
        raw = self.client.hget(Keys(served["run"]).prefix + "beats", name)
        if raw is None or self.finished(served):
            return None
        beat = json.loads(raw)
        return {
            "age_s": self.now() - beat["at"],
            "stage": beat["stage"],
            "moves": [beat["pid"], beat["progress"]],
            "holds": beat.get("held", 0) > 0,
        }

    def finished(self, served: Mapping[str, str]) -> bool:
        return bool(self.client.hget(Keys(served["run"]).state, "finished"))

    def slot(self, name: str) -> Facts | None:
        """A slot by its supervisor's report."""
        raw = self.client.hget(self.fleet + "said", name)
        if raw is None:
            return None
        said = json.loads(raw)
        wrong = f"is {said['state']}: {said['detail']}" if said["state"] in ("parked", "dead") else ""
        done = [[pool, work["items"]] for pool, work in said["work"].items()]
        return {
            "age_s": self.now() - said["at"],
            "stage": said["detail"] or f"{said['state']} {said['pool']}",
            "moves": [said["state"], said["pool"], said["pid"], done],
            "holds": said["held"] > 0,
            "wrong": wrong,
        }

    def scheduler(self, _: str) -> Facts | None:
        """The fleet's leader: this process or another, it decides while the run is open."""
        leader, served = self.client.hgetall(self.fleet + "leader"), self.served
        late_s = max(0.0, self.now() - float(leader.get("until", 0)) / 1000)
        newest = self.client.xrevrange(self.fleet + "decisions", count=1)
        at = int(newest[0][0].partition("-")[0]) / 1000 if newest else self.now()
        idle = not served or self.finished(served) or not self.client.hget(Keys(served["run"]).state, "version")
        wrong = "" if idle or self.now() - at < LOOK_S else f"nothing was decided for {self.now() - at:.0f} s"
        return {"age_s": late_s, "stage": "leading", "moves": at, "holds": False, "wrong": wrong}

    def run(self, _: str) -> Facts | None:
        """The launcher by its last look, and the run by what it saw; before there is a model, by the model's news."""
        from deploy.run_folder import runs_root  # only here, for it imports all settings

        latest = runs_root() / "latest"
        news = [latest / "snapshot.json", latest / "logs" / "initial-model.out"]
        there = [path for path in news if path.exists()]
        if not there:
            return None
        newest = max(there, key=lambda path: path.stat().st_mtime)
        at = newest.stat().st_mtime
        if newest.name != "snapshot.json":
            return {"age_s": 0.0, "stage": "preparing the model", "moves": at, "holds": True}
        seen = json.loads(newest.read_text())
        moves = [seen["version"], seen["counts"], *(one["progress"] for one in seen["processes"].values())]
        return {"age_s": time.time() - at, "stage": seen["stage"], "moves": moves, "holds": not seen["finished"]}


def answer(role: str, name: str, cluster: Cluster, memory: Path) -> str:
    """What is wrong with it; empty when it is well."""
    kinds: dict[str, Callable[[str], Facts | None]] = {
        "run": cluster.run,
        "scheduler": cluster.scheduler,
        "slot": cluster.slot,
    }
    facts = kinds.get(role, cluster.role)(name)
    if facts is None:
        return "" if role in ("feeder", "reward", "run") else "has not reported yet"
    wrong, after = judged(facts, remembered(memory), time.time())
    write_whole(memory, json.dumps(after))
    return wrong


def memory_of(fleet: str, role: str, name: str) -> Path:
    """Where the last answer about this process lies; others on this host have files of their own."""
    return Path(tempfile.gettempdir()) / f"tidemill-health-{quote(f'{fleet}-{role}-{name}', safe='')}.json"


def remembered(memory: Path) -> dict[str, Any]:
    """What was seen last; nothing where that cannot be read, and then the time begins anew."""
    try:
        found = json.loads(memory.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "since" in found else {}


def main(role: str) -> int:
    name, fleet = place_of(role), os.environ.get(FLEET_VARIABLE, FLEET)
    try:
        wrong = answer(role, name, Cluster(os.environ[URL_VARIABLE], fleet), memory_of(fleet, role, name))
    except (redis.RedisError, OSError, ValueError, KeyError) as error:
        wrong = f"cannot be asked: {type(error).__name__}: {error}"
    print(f"{name} {wrong}" if wrong else f"{name} is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
