"""What looking at a run costs its server, with 10,000 groups open: `python -m benchmarks.status`.

A real server holds a run whose groups lie in all three streams, a third of them in somebody's hands, and a fleet of
slots that report. It is looked at again and again just as `status`, `top`, launcher and dashboard do; measured is the
processor time of the server's own process. The last case reads the open set whole, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.message_sizes import Parts, parts_of
from benchmarks.result import Result, circumstances, gathered
from broker import embedded_server
from broker.contract import Announcement
from broker.fleet import Fleet, Served
from broker.messages import Delivery, Group
from broker.outcomes import Forward
from broker.redis_broker import RedisBroker
from broker.redis_trainer import RedisTrainer
from broker.streams import PROMPTS, ROLLOUTS, SCORED
from broker.telemetry import Meter
from deploy.observer import Observer
from deploy.run_check import load_run
from deploy.slot_crew import fleet_of

OPEN = 10_000
AT_ONCE = 250
"""Groups admitted, forwarded or read in one call."""
LOOKS = 500
WHOLE = "the open set read whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run of a size."""

    open: int
    slots: int


CASES = {
    "64 open, 8 slots": Case(open=64, slots=8),
    "10,000 open, 8 slots": Case(open=OPEN, slots=8),
    "10,000 open, 256 slots": Case(open=OPEN, slots=256),
}


async def filled(folder: Path, url: str, case: Case) -> RedisBroker:
    """A run with so many groups open: a third in each stream, half of each stream in somebody's hands."""
    trainer = await RedisTrainer.connect(url, folder.name)
    await trainer.claim(1)
    announced = Announcement(version=0, epoch=1, path="versions/000000-e001", digest="d0")
    await trainer.open_run(cap=case.open, groups=case.open, staleness=0, eval_cap=0, announcement=announced)
    await trainer.close()
    broker = await RedisBroker.connect(url, folder.name)
    await broker.enter(timeout_s=10)
    parts = parts_of(1 << 10)
    for start in range(0, case.open, AT_ONCE):
        names = [f"bench/0/{index}" for index in range(start, min(start + AT_ONCE, case.open))]
        await broker.admit(start, "", [Group(id=name, kind="train", prompt=parts.prompt) for name in names])
    await passed_on(broker, PROMPTS, case.open * 2 // 3, parts)
    await passed_on(broker, ROLLOUTS, case.open // 3, parts)
    for stream in (PROMPTS, ROLLOUTS, SCORED):
        await taken(broker, stream, case.open // 6)
    await reported(url, broker, folder, case.slots)
    return broker


async def taken(broker: RedisBroker, stream: str, number: int) -> list[Delivery]:
    """Read by readers of 32 places each."""
    found: list[Delivery] = []
    while len(found) < number:
        count = min(32, number - len(found))
        found += await broker.read(stream, f"{stream}-{len(found) // 32}.1", count=count, block_s=0)
    return found


async def passed_on(broker: RedisBroker, stream: str, number: int, parts: Parts) -> None:
    for start in range(0, number, AT_ONCE):
        deliveries = await broker.read(stream, "bench.1", count=min(AT_ONCE, number - start), block_s=0)
        groups = [Group(id=one.entry.group, kind="train", prompt=parts.prompt) for one in deliveries]
        grown = [group.with_rollouts(parts.rollouts) for group in groups]
        if stream == ROLLOUTS:
            grown = [group.with_scores(parts.scores) for group in grown]
        done = zip(deliveries, map(forward, grown), strict=True)
        await broker.settle("bench.1", list(done))


def forward(group: Group) -> Forward:
    return Forward(group=group)


async def reported(url: str, broker: RedisBroker, folder: Path, slots: int) -> None:
    """Every slot with its record, its own report and its controller's."""
    fleet = await Fleet.connect(url, fleet_of(folder.name))
    await fleet.serve(Served(run=folder.name, folder=str(folder), url=url))
    for number in range(slots):
        name, meter = f"slot-{number}", Meter(stage="sampling")
        work = {"rollout": {"busy_s": 1.0, "items": 1, "spent_s": 1.0, "places": 32.0, "half_at": 0.0}}
        await fleet.offer(name, "rollout", 1)
        said = {"state": "serving", "pool": "rollout", "epoch": 1, "for_s": 1.0, "held": 4, "moved": 1, "work": work}
        await fleet.say(name, {**said, "gpus": str(number), "detail": "", "move_s": 1.0})
        await broker.beat(name, {"role": "rollout", "pid": number, **meter.facts()})
    await fleet.decided({"now": time.time(), "sentence": "stay: no move would help", "moves": [], "numbers": {}})
    await fleet.close()


async def measured(case: Case, *, whole: bool = False) -> dict[str, float]:
    """Processor time of the server and time of the caller, for one look."""
    with tempfile.TemporaryDirectory() as name, embedded_server.serving(Path(name) / "redis") as url:
        folder = Path(name)
        broker = await filled(folder, url, case)
        observer = Observer(folder, load_run("addition"), broker, started=time.monotonic())
        seen = await observer.look()
        assert (seen.open, len(seen.slots), seen.unanswered) == (case.open, case.slots, "")
        server = psutil.Process(embedded_server.pid(folder / "redis"))
        found = await cost(server, broker.books if whole else observer.look)
        await broker.close()
    return found


async def cost(server: psutil.Process, look: Callable[[], Awaitable[object]]) -> dict[str, float]:
    await look()
    before, began = cpu_s(server), time.monotonic()
    for _ in range(LOOKS):
        await look()
    server_ms = 1e3 * (cpu_s(server) - before) / LOOKS
    look_ms = 1e3 * (time.monotonic() - began) / LOOKS
    return {
        "server_ms_per_look": round(server_ms, 4),
        "share_of_server_at_1_hz_percent": round(server_ms / 10, 4),
        "look_ms": round(look_ms, 2),
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def samples_of(repeats: int) -> dict[str, Sequence[dict[str, float]]]:
    found: dict[str, Sequence[dict[str, float]]] = {}
    for name, case in CASES.items():
        found[name] = [asyncio.run(measured(case)) for _ in range(repeats)]
        print(name, found[name][-1], flush=True)
    found[WHOLE] = [asyncio.run(measured(CASES["10,000 open, 8 slots"], whole=True)) for _ in range(repeats)]
    print(WHOLE, found[WHOLE][-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    before = circumstances()
    result = Result(
        name="status",
        measures="processor time of the server for one look of `status`, `top`, launcher or dashboard",
        circumstances=before,
        settings={"repeats": repeats, "looks": LOOKS},
        samples={name: gathered(found) for name, found in samples_of(repeats).items()},
    )
    result.save("; ".join(headline(result, name) for name in result.samples))


def headline(result: Result, name: str) -> str:
    share = result.median(name, "share_of_server_at_1_hz_percent")
    return f"{name}: {result.median(name, 'server_ms_per_look'):.2f} ms, {share:.2f}% of the server's time at 1 Hz"


if __name__ == "__main__":
    main()
