"""`python -m producers feeder|rollout --run DIR`: wiring only.

For: one role's process on a run folder. Not for: decisions. Torch and vLLM are imported by the engine alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from broker.archive import archive_of
from broker.cancellation import together
from broker.consume import Consuming, Rules, consume
from broker.metrics_endpoint import measured
from broker.redis_broker import RedisBroker
from broker.role_process import beating, command, leave, loaded
from broker.run_facts import run_facts
from broker.settings import BrokerSection, RunSection, WeightsSection, broker_url, load_section, run_folder_settings
from broker.streams import PROMPTS
from broker.telemetry import Meter
from broker.weights import VersionStore
from producers.preload import preload
from producers.settings import PromptsSection, RolloutSection

log = structlog.get_logger()


async def rollout(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Engine, follower and the consuming loop of `prompts`."""
    from producers.engines import create
    from producers.rollout_producer import RolloutProducer
    from producers.weight_follower import WeightFollower

    raw = run_folder_settings(folder)
    settings = load_section(RolloutSection, "rollout", raw["rollout"])
    weights = load_section(WeightsSection, "weights", raw["weights"])
    broker_settings = load_section(BrokerSection, "broker", raw["broker"])
    run = load_section(RunSection, "run", raw["run"])
    archive = archive_of(folder, name, run)
    meter = Meter(stage="importing")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    async with beating(broker, name, "rollout", meter), measured(folder, raw, name, "rollout", meter):
        await loaded(stop, preload, "rollout", folder, raw)
        log.info("imported")
        meter.stage = "loading the engine"
        engine = await loaded(stop, create, settings.engine, folder / "model", settings, seed=run.seed)
        log.info("engine loaded")
        meter.stage = "waiting for the run to open"
        meter.loaded()

        def advance() -> float:
            return getattr(engine, "beats", meter.tokens) + meter.progress

        async def stay() -> None:
            """A follower and a consuming loop that know nothing yet: what served or was held before may be gone."""
            meter.stage = "sampling"
            store = VersionStore(folder / "store")
            follower = WeightFollower(broker, engine, store, weights, mode=settings.update, holder=name, meter=meter)
            produce, rules = RolloutProducer(engine, follower, meter), Rules.of(broker_settings, engine.capacity)
            consuming = Consuming(
                broker, PROMPTS, name, produce, rules, meter, stop, archive, advance, may_read=follower.may_read
            )
            await together(consuming.run(), follower.follow(), follower.switch(), follower.keep_hold())

        await consume(stay, broker, stop)
        await engine.close()
    await broker.close()


async def feed(folder: Path, name: str, stop: asyncio.Event) -> None:
    from producers.feeder import run as run_feeder

    raw = run_folder_settings(folder)
    broker_settings = load_section(BrokerSection, "broker", raw["broker"])
    meter = Meter(stage="waiting for the run to open")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    meter.metrics.ask(run_facts(broker.connection))
    async with beating(broker, name, "feeder", meter), measured(folder, raw, name, "feeder", meter):
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


ROLES = {"rollout": rollout, "feeder": feed}


if __name__ == "__main__":
    leave(command("producers", ROLES))
