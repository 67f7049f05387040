"""One cycle of the scheduler without its server: rates, targets and plan for fleets of up to 10 000 slots.

    make bench-planner

Every slot has worked since the last look; half of the cycles find a fleet that should move a tenth of its slots.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from dataclasses import replace

from benchmarks.result import Result, circumstances, gathered
from scheduler.lifecycle import State
from scheduler.observation import Observation, Service, Slot
from scheduler.placements.pressure import Pressure
from scheduler.planner import Decision, Rules, plan
from scheduler.pools import SHIPPED
from scheduler.rates import Rates

POOLS = tuple(replace(pool, max=None) for pool in SHIPPED.values())
SHAPES = {
    "rollout": Service(item_s=0.0, move_s=10.0, places=4, half_at=0.5),
    "judge": Service(item_s=0.0, move_s=10.0, places=4, half_at=0.5),
    "train": Service(item_s=0.0, move_s=15.0),
}
COSTS = {"rollout": 6.0, "judge": 1.2, "train": 1.3}
SIZES = (64, 1024, 10_000)


def fleet(slots: int, shares: dict[str, float], looks: int) -> tuple[Slot, ...]:
    """Slots that have worked for so many looks of a minute."""
    pools = [pool for pool, share in shares.items() for _ in range(round(share * slots))][:slots]
    return tuple(
        Slot(
            id=f"slot{number}",
            pool=pool,
            state=State.SERVING,
            busy_s=60.0 * looks,
            spent_s=60.0 * looks,
            items=int(60 * looks / COSTS[pool]),
            holds=True,
        )
        for number, pool in enumerate(pools)
    )


def cycle(rates: Rates, slots: tuple[Slot, ...], *, dry: bool) -> Decision:
    """What the daemon computes between reading and writing. `dry`: the rollout slots have nothing to do."""
    count = len(slots)
    backlog = {"prompts": 0 if dry else 4 * count, "rollouts": 2 * count, "scored": (10 if dry else 6) * count}
    rates.observe(slots, now=1000.0)
    observation = Observation(
        now=1000.0,
        backlog=backlog,
        slots=slots,
        service=rates.service(),
        groups=3 * count,
        cap=12 * count,
        staleness=3,
    )
    return plan(observation, POOLS, Pressure().targets(observation, POOLS), Rules())


def measured(slots: int, *, dry: bool) -> dict[str, float]:
    """One cycle, with fresh rates; timed first, then once more for its memory."""
    shares = {"rollout": 0.8, "judge": 0.1, "train": 0.1} if dry else {"rollout": 0.7, "judge": 0.15, "train": 0.15}
    first, second = fleet(slots, shares, 1), fleet(slots, shares, 2)
    rates = Rates(SHAPES)
    rates.observe(first, now=940.0)
    began = time.perf_counter()
    decision = cycle(rates, second, dry=dry)
    seconds = time.perf_counter() - began
    rates = Rates(SHAPES)
    rates.observe(first, now=940.0)
    tracemalloc.start()
    cycle(rates, second, dry=dry)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"cycle_ms": 1000 * seconds, "peak_mb": peak / 2**20, "moves": float(len(decision.moves))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    taken = circumstances()
    cases = {f"{slots} slots, {'moves' if dry else 'stays'}": (slots, dry) for slots in SIZES for dry in (False, True)}
    samples = {
        name: gathered([measured(slots, dry=dry) for _ in range(repeats)]) for name, (slots, dry) in cases.items()
    }
    result = Result(
        name="planner",
        measures="one cycle of rates, `pressure` and planner, one core",
        circumstances=taken,
        settings={"repeats": repeats},
        samples=samples,
    )
    result.save(
        "; ".join(
            f"{name}: {result.median(name, 'cycle_ms'):.1f} ms, {result.median(name, 'peak_mb'):.1f} MB at most"
            for name in cases
        )
    )


if __name__ == "__main__":
    main()
