"""`python -m consumers reward|trainer|rank --run DIR`: wiring only.

For: one role's process on a run folder. Not for: decisions. Torch and DeepSpeed are imported by the learner alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from broker.archive import Archive
from broker.consume import Consuming, Rules, consume
from broker.redis_broker import RedisBroker
from broker.role_process import beating, command, leave
from broker.settings import BrokerSection, RunSection, broker_url, load_section, run_folder_settings
from broker.streams import ROLLOUTS
from broker.telemetry import Meter
from consumers.settings import AlgorithmSection, RewardSection

log = structlog.get_logger()


async def reward(folder: Path, name: str, stop: asyncio.Event) -> None:
    """Rewards and the consuming loop of `rollouts`."""
    from consumers.algorithms import create as create_algorithm
    from consumers.reward_consumer import RewardConsumer
    from consumers.rewards import create as create_reward

    raw = run_folder_settings(folder)
    run, broker_settings = (
        load_section(RunSection, "run", raw["run"]),
        load_section(BrokerSection, "broker", raw["broker"]),
    )
    settings, algorithm = (
        load_section(RewardSection, "reward", raw["reward"]),
        load_section(AlgorithmSection, "algorithm", raw["algorithm"]),
    )
    meter = Meter(stage="starting the rules")
    broker = await RedisBroker.connect(broker_url(broker_settings), folder.name)
    archive = Archive(folder / "groups", name) if run.keep_groups else None
    async with beating(broker, name, "reward", meter):
        rewards = create_reward(settings)
        handler = RewardConsumer(
            rewards, create_algorithm(algorithm).has_signal, dynamic_sampling=algorithm.dynamic_sampling
        )
        rules = Rules.of(broker_settings, settings.capacity)

        async def stay() -> None:
            meter.stage = "scoring"
            await Consuming(broker, ROLLOUTS, name, handler, rules, meter, stop, archive=archive).run()

        await rewards.start()
        log.info("rules started")
        meter.stage, meter.ready = "waiting for the run to open", True
        await consume(stay, broker, stop)
        await rewards.close()
    await broker.close()


async def trainer(folder: Path, name: str, stop: asyncio.Event) -> None:
    from consumers.trainer_start import train

    meter = Meter(stage="loading the learner")
    raw = run_folder_settings(folder)
    await train(folder, name, raw, meter, stop)


async def rank(folder: Path, name: str, stop: asyncio.Event) -> None:
    """A rank beyond 0. The trainer starts it and tells it when to leave, so it is deaf to `stop`."""
    from consumers.rank_start import serve

    await serve(folder, name, run_folder_settings(folder), Meter(stage="loading the learner"))


ROLES = {"reward": reward, "trainer": trainer, "rank": rank}


if __name__ == "__main__":
    leave(command("consumers", ROLES))
