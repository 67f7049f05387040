"""What being watched costs the watched: `python -m benchmarks.telemetry`.

Processor time of one thread for all that a group adds to its process's metrics, for a step's metrics and curves, and
for a scrape, which the same process asks and answers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from structlog.contextvars import bind_contextvars

from benchmarks.result import Result, circumstances, gathered
from broker.measures import HANDLING, SETTLED
from broker.messages import Delivery, Entry
from broker.metrics_endpoint import Endpoint, facts_of
from broker.telemetry import Meter
from consumers.scalars import Scalars
from consumers.step_metrics import StepMetrics

GROUPS = 20_000
STEPS = 500
SCRAPES = 100
STEP: Mapping[str, Any] = {
    "version": 7,
    "at": 1.0,
    "seconds": 2.0,
    "reward": 0.5,
    "groups": 64,
    "rollouts": 512,
    "tokens": 2048,
    "zero_signal": 3,
    "wait_s": 0.1,
    "train_s": 1.5,
    "publish_s": 0.4,
    "loss": 0.1,
    "grad_norm": 1.0,
    "kl": 0.01,
    "mismatch_k3": 0.0,
    "ratio_mean": 1.0,
    "ratio_max": 1.2,
    "clipped_share": 0.1,
    "masked_share": 0.0,
    "ess": 0.9,
    "staleness": {"mean": 0.5, "max": 1, "counts": {"0": 32, "1": 32}},
}
"""Of 64 groups, with all that the DeepSpeed learner says."""


def cost(work: Callable[[], object], times: int) -> float:
    """Microseconds of this thread's processor time, each."""
    work()
    before = time.thread_time()
    for _ in range(times):
        work()
    return round(1e6 * (time.thread_time() - before) / times, 2)


def a_group(meter: Meter) -> Callable[[], None]:
    """Just what `Consuming` adds for a group."""
    entry = Entry(group="bench/0/7", kind="train", task="bench", size=8, floor=0, last_version=1)
    delivery = Delivery(stream="prompts", entry_id=f"{int(1000 * time.time())}-0", entry=entry)

    def work() -> None:
        bind_contextvars(group=entry.group)
        meter.taken_up(delivery, time.time())
        meter.metrics.observe(HANDLING, 0.3)
        meter.metrics.count(SETTLED, outcome="forwarded")

    return work


def measured() -> dict[str, float]:
    meter = Meter(tokens=1, version=1)
    meter.metrics.ask(lambda: facts_of(meter))
    counts, group = StepMetrics(meter.metrics), a_group(meter)
    with tempfile.TemporaryDirectory() as name:
        scalars = Scalars(Path(name), goes_on_at=1)
        endpoint = Endpoint(meter.metrics, role="rollout", process="rollout-0")
        endpoint.join(Path(name) / "bench", {})
        found = {
            "group_us": cost(group, GROUPS),
            "step_metrics_us": cost(lambda: counts.step(STEP), STEPS),
            "step_curves_us": cost(lambda: scalars.step(STEP), STEPS),
            "scrape_ms": scrape_ms(endpoint.address),
        }
        endpoint.close()
        scalars.close()
    return found


def scrape_ms(address: str) -> float:
    """Processor time of the whole process, the asking side included."""
    before = time.process_time()
    for _ in range(SCRAPES):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            answer.read()
    return round(1e3 * (time.process_time() - before) / SCRAPES, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    before = circumstances()
    samples: Sequence[dict[str, float]] = [measured() for _ in range(repeats)]
    result = Result(
        name="telemetry",
        measures="processor time that metrics and curves add to a group, to a step of 64 groups, and a scrape",
        circumstances=before,
        settings={"repeats": repeats, "groups": GROUPS, "steps": STEPS},
        samples={"all": gathered(samples)},
    )
    result.save(headline(result))


def headline(result: Result) -> str:
    group, counts, curves, scrape = (
        result.median("all", name) for name in ("group_us", "step_metrics_us", "step_curves_us", "scrape_ms")
    )
    return f"group {group:.1f} µs; step {counts:.0f} µs of counting, {curves:.0f} µs of curves; scrape {scrape:.1f} ms"


if __name__ == "__main__":
    main()
