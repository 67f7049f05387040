"""`python -m producers feeder|rollout --run DIR`: wiring only.

For: one role's process on a run folder. Not for: decisions. Torch and vLLM are imported by the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from broker.consume import Consuming, Rules, consume
from broker.errors import Misconfigured
from broker.redis_broker import RedisBroker
from broker.role_process import beating, run_role
from broker.settings import BrokerSection, RunSection, WeightsSection, broker_url, load_section, run_folder_settings
from broker.streams import PROMPTS
from broker.telemetry import Meter, configure
from broker.weights import VersionStore
from producers.settings import PromptsSection, RolloutSection


async def rollout(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Engine, follower and the consuming loop of `prompts`."""
    from producers.engines import create
    from producers.rollout_producer import RolloutProducer
    from producers.weight_follower import WeightFollower

    raw = run_folder_settings(folder)
    run, broker_settings = (
        load_section(RunSection, "run", raw["run"]),
        load_section(BrokerSection, "broker", raw["broker"]),
    )
    settings, weights = (
        load_section(RolloutSection, "rollout", raw["rollout"]),
        load_section(WeightsSection, "weights", raw["weights"]),
    )
    meter = Meter(stage="loading the engine")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    async with beating(broker, name, "rollout", meter):
        engine = await asyncio.to_thread(
            create, settings.engine, model_folder=folder / "model", settings=settings, seed=run.seed
        )
        meter.stage = "waiting for the run to open"
        follower = WeightFollower(
            broker, engine, VersionStore(folder / "store"), weights, mode=settings.update, holder=name, meter=meter
        )
        await broker.enter(timeout_s=600)
        handler = RolloutProducer(engine, follower, meter)
        rules = rules_of(broker_settings, engine.capacity)

        def stay() -> Consuming:
            meter.stage = "sampling"
            return Consuming(
                broker,
                PROMPTS,
                name,
                handler,
                rules,
                meter,
                stop,
                progress=lambda: getattr(engine, "beats", meter.tokens) + meter.progress,
                may_read=follower.may_read,
            )

        await together(consume(stay, broker, stop), follower.follow(), follower.switch(), follower.keep_hold())
        await engine.close()
    await broker.close()


async def together(main: Coroutine[Any, Any, None], *background: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end beside loops that never end; the first failure ends all."""
    async with asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(one) for one in background]
        await main
        for other in others:
            other.cancel()


async def feed(folder: Path, name: str, stop: asyncio.Event) -> None:
    from producers.feeder import run as run_feeder

    raw = run_folder_settings(folder)
    broker_settings = load_section(BrokerSection, "broker", raw["broker"])
    meter = Meter(stage="waiting for the run to open")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    async with beating(broker, name, "feeder", meter):
        await run_feeder(
            broker,
            folder=folder,
            run=load_section(RunSection, "run", raw["run"]),
            prompts=load_section(PromptsSection, "prompts", raw["prompts"]),
            rollout=load_section(RolloutSection, "rollout", raw["rollout"]),
            meter=meter,
            stop=stop,
        )
    await broker.close()


def rules_of(settings: BrokerSection, capacity: int) -> Rules:
    return Rules(
        capacity=capacity,
        block_s=settings.block_s,
        lease_s=settings.lease_s,
        max_attempts=settings.max_attempts,
        drain_s=settings.drain_s,
    )


ROLES = {"rollout": rollout, "feeder": feed}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m producers", description=__doc__)
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--run", type=Path, required=True, help="run folder")
    parser.add_argument("--name", default="", help="name of the slot; default: the role")
    options = parser.parse_args(arguments)
    folder, name = options.run.resolve(), options.name or options.role
    try:
        configure(folder, process=name, role=options.role, run=folder.name)
        run_folder_settings(folder)
    except Misconfigured as error:
        print(f"Misconfigured: {error}", file=sys.stderr)
        return error.exit_code
    return run_role(lambda stop: ROLES[options.role](folder, name, stop))


if __name__ == "__main__":
    sys.exit(main())
